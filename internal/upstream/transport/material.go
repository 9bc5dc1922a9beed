package transport

import (
	"crypto/tls"
	"errors"
	"fmt"
	"strings"
	"time"

	"k8s.io/client-go/rest"

	"spillway/internal/rotation"
)

// trust is the authorities that may vouch for upstream's certificate, and the file that names them.
type trust struct {
	*rotation.Authorities
	file string
}

// certificate is what the proxy shows upstream.
type certificate = tls.Certificate

func hasCA(c *rest.Config) bool { return len(c.CAData) > 0 || c.CAFile != "" }

func hasPair(c *rest.Config) bool {
	return (len(c.CertData) > 0 || c.CertFile != "") && (len(c.KeyData) > 0 || c.KeyFile != "")
}

func hasToken(c *rest.Config) bool { return c.BearerToken != "" || c.BearerTokenFile != "" }

func parseTrust(parts []rotation.Part) (*trust, time.Time, error) {
	roots, expires, err := rotation.ParseRoots(parts[0].Text)
	if err != nil {
		return nil, time.Time{}, err
	}
	return &trust{Authorities: roots, file: parts[0].File}, expires, nil
}

func parsePair(parts []rotation.Part) (*certificate, time.Time, error) {
	return rotation.ParsePair(parts[0].Text, parts[1].Text)
}

func parseToken(parts []rotation.Part) (string, time.Time, error) {
	token := strings.TrimSpace(string(parts[0].Text))
	switch {
	case token == "":
		return "", time.Time{}, errors.New("it is empty")
	case strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r == 0x7f }):
		return "", time.Time{}, errors.New("it is more than a word, which no header can carry")
	}
	return token, time.Time{}, nil
}

// UntrustedError says that upstream's certificate is not good, and by which authorities.
type UntrustedError struct {
	CA  string // the file; "": the system's
	Err error
}

// Error implements error.
func (e *UntrustedError) Error() string {
	ca := e.CA
	if ca == "" {
		ca = "the system's certificates"
	}
	return fmt.Sprintf("the apiserver's certificate is not trusted, by %s: %s", ca, e.Err)
}

// Unwrap is what crypto/tls said.
func (e *UntrustedError) Unwrap() error { return e.Err }
