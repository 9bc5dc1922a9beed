package tlsconn

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"fmt"
)

const (
	// CertificatesLimit is how many certificates a client may send, its own included.
	CertificatesLimit = 10
	// CertificateBytesLimit is how many bytes they may have together, and DecodedBytesLimit how
	// many they may take once they are decoded. An ordinary one of 1.5 KiB takes 5.
	CertificateBytesLimit = 16 << 10
	DecodedBytesLimit     = 64 << 10
)

// What crypto/x509 makes of a certificate, in bytes.
const (
	certificateCost = 3 << 10        // the struct, its names without attributes, a key, its serial number
	attributeCost   = 80             // an attribute of a name, beside its bytes
	extensionCost   = 64             // an extension, beside its bytes, which are the certificate's
	wordCost        = 8              // a number, or a pointer
	sliceCost       = 24             // the header of a slice
	stringCost      = 16             // the header of a string
	policyCost      = sliceCost + 16 // a policy's object identifier
	addressCost     = sliceCost + 16 // an IP address
	networkCost     = 64             // an IP network
	uriCost         = 192            // a parsed URI, beside its bytes
)

// CheckCount refuses a chain of more than CertificatesLimit certificates.
func CheckCount(certificates int) error {
	if certificates > CertificatesLimit {
		return fmt.Errorf("the client sent %d certificates: send at most %d", certificates, CertificatesLimit)
	}
	return nil
}

// CheckCertificates implements tls.Config.VerifyConnection: it refuses a client that has sent more
// certificates, or such as decode to more bytes, than stay with a connection. crypto/tls calls it
// as soon as they are decoded.
func CheckCertificates(state tls.ConnectionState) error {
	if err := CheckCount(len(state.PeerCertificates)); err != nil {
		return err
	}
	encoded, decoded := 0, 0
	for _, c := range state.PeerCertificates {
		encoded, decoded = encoded+len(c.Raw), decoded+decodedBytes(c)
	}
	switch {
	case encoded > CertificateBytesLimit:
		return fmt.Errorf("the client's certificates have %d bytes: send at most %d", encoded, CertificateBytesLimit)
	case decoded > DecodedBytesLimit:
		return fmt.Errorf("the client's certificates take %d bytes decoded, at most %d are accepted: use one with fewer "+
			"names and extensions", decoded, DecodedBytesLimit)
	}
	return nil
}

// decodedBytes is about how many bytes a decoded certificate takes.
func decodedBytes(c *x509.Certificate) int {
	n := certificateCost + len(c.Raw) + nameBytes(&c.Subject) + nameBytes(&c.Issuer)
	n += cap(c.Extensions) * extensionCost
	for _, e := range c.Extensions {
		n += objectBytes(e.Id) + len(e.Value)
	}
	n += cap(c.ExtKeyUsage)*wordCost + objectsBytes(c.UnknownExtKeyUsage) + objectsBytes(c.PolicyIdentifiers)
	n += (cap(c.Policies) + 2*cap(c.PolicyMappings)) * policyCost
	for _, texts := range [][]string{
		c.DNSNames, c.EmailAddresses, c.OCSPServer, c.IssuingCertificateURL, c.CRLDistributionPoints,
		c.PermittedDNSDomains, c.ExcludedDNSDomains, c.PermittedEmailAddresses, c.ExcludedEmailAddresses,
		c.PermittedURIDomains, c.ExcludedURIDomains,
	} {
		n += textsBytes(texts)
	}
	n += cap(c.IPAddresses)*addressCost + (cap(c.PermittedIPRanges)+cap(c.ExcludedIPRanges))*networkCost
	n += cap(c.URIs) * wordCost
	for _, u := range c.URIs {
		n += uriCost + 2*len(u.Path) + len(u.Host) + len(u.RawQuery) + len(u.Opaque) + len(u.Fragment)
	}
	return n
}

// nameBytes is what a subject or issuer takes: its attributes, and those of them that have a field.
func nameBytes(name *pkix.Name) int {
	n := cap(name.Names) * attributeCost
	for _, a := range name.Names {
		n += objectBytes(a.Type)
		if text, ok := a.Value.(string); ok {
			n += len(text)
		}
	}
	for _, texts := range [][]string{
		name.Country, name.Organization, name.OrganizationalUnit, name.Locality, name.Province, name.StreetAddress,
		name.PostalCode,
	} {
		n += cap(texts) * stringCost
	}
	return n
}

func textsBytes(texts []string) int {
	n := cap(texts) * stringCost
	for _, text := range texts {
		n += len(text)
	}
	return n
}

func objectsBytes(ids []asn1.ObjectIdentifier) int {
	n := cap(ids) * sliceCost
	for _, id := range ids {
		n += objectBytes(id)
	}
	return n
}

// objectBytes is what the numbers of an object identifier take.
func objectBytes(id asn1.ObjectIdentifier) int { return max(cap(id), 2) * wordCost }
