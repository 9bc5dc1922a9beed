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

// Usages gives a certificate so many extended key usages, of 3 bytes each.
func Usages(n int) func(*x509.Certificate) {
	return func(c *x509.Certificate) {
		for i := range n {
			c.UnknownExtKeyUsage = append(c.UnknownExtKeyUsage, asn1.ObjectIdentifier{1, i % 39})
		}
	}
}

// Dense are changes that make the most of a certificate's bytes, by what they add n of.
var Dense = map[string]func(n int) func(*x509.Certificate){
	"usages": Usages,
	"extensions": func(n int) func(*x509.Certificate) {
		return func(c *x509.Certificate) {
			for i := range n {
				c.ExtraExtensions = append(c.ExtraExtensions, pkix.Extension{Id: asn1.ObjectIdentifier{1, 3, 6, 1, i}})
			}
		}
	},
	"DNS names": func(n int) func(*x509.Certificate) {
		return func(c *x509.Certificate) {
			for range n {
				c.DNSNames = append(c.DNSNames, "a")
			}
		}
	},
	"addresses": func(n int) func(*x509.Certificate) {
		return func(c *x509.Certificate) {
			for range n {
				c.IPAddresses = append(c.IPAddresses, net.IPv4(1, 2, 3, 4).To4())
			}
		}
	},
	"URIs": func(n int) func(*x509.Certificate) {
		return func(c *x509.Certificate) {
			for range n {
				c.URIs = append(c.URIs, &url.URL{Scheme: "a", Opaque: "b"})
			}
		}
	},
	"policies": func(n int) func(*x509.Certificate) {
		return func(c *x509.Certificate) {
			for i := range n {
				policy, err := x509.OIDFromInts([]uint64{1, 3, uint64(i)}) // #nosec G115 -- a small number
				if err != nil {
					panic(err)
				}
				c.Policies = append(c.Policies, policy)
			}
		}
	},
	"attributes of its name": func(n int) func(*x509.Certificate) {
		return func(c *x509.Certificate) {
			for i := range n {
				c.Subject.ExtraNames = append(c.Subject.ExtraNames,
					pkix.AttributeTypeAndValue{Type: asn1.ObjectIdentifier{1, 3, i}, Value: "a"})
			}
		}
	},
	"organizations": func(n int) func(*x509.Certificate) {
		return func(c *x509.Certificate) {
			for i := range n {
				c.Subject.Organization = append(c.Subject.Organization, fmt.Sprint(i))
			}
		}
	},
	"permitted domains": func(n int) func(*x509.Certificate) {
		return func(c *x509.Certificate) {
			c.PermittedDNSDomainsCritical = true
			for range n {
				c.PermittedDNSDomains = append(c.PermittedDNSDomains, "a")
			}
		}
	},
	"permitted addresses": func(n int) func(*x509.Certificate) {
		return func(c *x509.Certificate) {
			c.PermittedDNSDomainsCritical = true
			for range n {
				c.PermittedIPRanges = append(c.PermittedIPRanges,
					&net.IPNet{IP: net.IPv4(1, 2, 3, 0).To4(), Mask: net.CIDRMask(24, 32)})
			}
		}
	},
	"issuers": func(n int) func(*x509.Certificate) {
		return func(c *x509.Certificate) {
			for range n {
				c.IssuingCertificateURL = append(c.IssuingCertificateURL, "a")
				c.OCSPServer = append(c.OCSPServer, "b")
			}
		}
	},
	"distribution points": func(n int) func(*x509.Certificate) {
		return func(c *x509.Certificate) {
			for range n {
				c.CRLDistributionPoints = append(c.CRLDistributionPoints, "a")
			}
		}
	},
}
