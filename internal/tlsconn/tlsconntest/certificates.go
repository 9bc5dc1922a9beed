package tlsconntest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"fmt"
	"math/big"
	"net"
	"net/url"
	"testing"
	"time"
)

// Certificate is a self-signed certificate of a client, changed by some.
func Certificate(t testing.TB, change ...func(*x509.Certificate)) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "mallory"}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour), ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	for _, f := range change {
		f(template)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// repeat is a change that is made n times, by its index.
func repeat(change func(c *x509.Certificate, i int)) func(n int) func(*x509.Certificate) {
	return func(n int) func(*x509.Certificate) {
		return func(c *x509.Certificate) {
			for i := range n {
				change(c, i)
			}
		}
	}
}

// Usages gives a certificate so many extended key usages, of 3 bytes each.
var Usages = repeat(func(c *x509.Certificate, i int) {
	c.UnknownExtKeyUsage = append(c.UnknownExtKeyUsage, asn1.ObjectIdentifier{1, i % 39})
})

// Dense are changes that make the most of a certificate's bytes, by what they add n of.
var Dense = map[string]func(n int) func(*x509.Certificate){
	"usages": Usages,
	"extensions": repeat(func(c *x509.Certificate, i int) {
		c.ExtraExtensions = append(c.ExtraExtensions, pkix.Extension{Id: asn1.ObjectIdentifier{1, 3, 6, 1, i}})
	}),
	"DNS names": repeat(func(c *x509.Certificate, _ int) { c.DNSNames = append(c.DNSNames, "a") }),
	"addresses": repeat(func(c *x509.Certificate, _ int) {
		c.IPAddresses = append(c.IPAddresses, net.IPv4(1, 2, 3, 4).To4())
	}),
	"URIs": repeat(func(c *x509.Certificate, _ int) {
		c.URIs = append(c.URIs, &url.URL{Scheme: "a", Opaque: "b"})
	}),
	"policies": repeat(func(c *x509.Certificate, i int) {
		policy, err := x509.OIDFromInts([]uint64{1, 3, uint64(i)}) // #nosec G115 -- a small number
		if err != nil {
			panic(err)
		}
		c.Policies = append(c.Policies, policy)
	}),
	"attributes of its name": repeat(func(c *x509.Certificate, i int) {
		c.Subject.ExtraNames = append(c.Subject.ExtraNames,
			pkix.AttributeTypeAndValue{Type: asn1.ObjectIdentifier{1, 3, i}, Value: "a"})
	}),
	"organizations": repeat(func(c *x509.Certificate, i int) {
		c.Subject.Organization = append(c.Subject.Organization, fmt.Sprint(i))
	}),
	"permitted domains": repeat(func(c *x509.Certificate, _ int) {
		c.PermittedDNSDomainsCritical = true
		c.PermittedDNSDomains = append(c.PermittedDNSDomains, "a")
	}),
	"permitted addresses": repeat(func(c *x509.Certificate, _ int) {
		c.PermittedDNSDomainsCritical = true
		c.PermittedIPRanges = append(c.PermittedIPRanges,
			&net.IPNet{IP: net.IPv4(1, 2, 3, 0).To4(), Mask: net.CIDRMask(24, 32)})
	}),
	"issuers": repeat(func(c *x509.Certificate, _ int) {
		c.IssuingCertificateURL = append(c.IssuingCertificateURL, "a")
		c.OCSPServer = append(c.OCSPServer, "b")
	}),
	"distribution points": repeat(func(c *x509.Certificate, _ int) {
		c.CRLDistributionPoints = append(c.CRLDistributionPoints, "a")
	}),
}
