package auth

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/apis/asn1"
)

// userOfCertificate is the identity that a verified certificate names, as kube-apiserver reads it:
// the common name, the organizations as groups, the user id if the subject has one, and the
// certificate's fingerprint as the credential's id. nil: it names none.
func userOfCertificate(c *x509.Certificate) (*Identity, error) {
	if c.Subject.CommonName == "" {
		return nil, nil
	}
	uid, err := certificateUID(c)
	if err != nil {
		return nil, err
	}
	fingerprint := sha256.Sum256(c.Raw)
	id := "X509SHA256=" + hex.EncodeToString(fingerprint[:])
	return NewIdentity(authenticationv1.UserInfo{
		Username: c.Subject.CommonName, UID: uid, Groups: c.Subject.Organization,
		Extra: map[string]authenticationv1.ExtraValue{CredentialIDExtra: {id}},
	}), nil
}

var (
	errNotTextUID = errors.New("the user id in the certificate is not a string")
	errEmptyUID   = errors.New("the user id in the certificate is empty")
	errManyUIDs   = errors.New("the certificate has more than one user id")
)

// certificateUID reads the user id of a certificate's subject; there need not be one
// (AllowParsingUserUIDFromCertAuth).
func certificateUID(c *x509.Certificate) (string, error) {
	uid, found := "", false
	for _, name := range c.Subject.Names {
		if !name.Type.Equal(asn1.X509UID()) {
			continue
		}
		text, ok := name.Value.(string)
		switch {
		case !ok:
			return "", errNotTextUID
		case found:
			return "", errManyUIDs
		case text == "":
			return "", errEmptyUID
		}
		uid, found = text, true
	}
	return uid, nil
}

// certificateError says why a certificate was refused, and names it by its serial number, which is
// no secret.
func certificateError(c *x509.Certificate, err error) error {
	return fmt.Errorf("certificate with serial number %d: %w", c.SerialNumber, err)
}
