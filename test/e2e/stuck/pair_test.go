package stuck

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"spillway/test/framework/controlplane"
)

// servingPair is a certificate and its key, in files, and a client that trusts it.
func servingPair(t *testing.T) (cert, key string, client *http.Client) {
	t.Helper()
	authority, err := controlplane.NewAuthority()
	must(t, err)
	pair, err := authority.IssueServer("webhook")
	must(t, err)
	dir := t.TempDir()
	cert, key = filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	must(t, os.WriteFile(cert, pair.Cert, 0o600))
	must(t, os.WriteFile(key, pair.Key, 0o600))
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(authority.PEM())
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}}
	t.Cleanup(transport.CloseIdleConnections)
	return cert, key, &http.Client{Transport: transport}
}
