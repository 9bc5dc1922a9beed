package watch

import (
	"crypto/tls"
	"net/http"
	"net/http/httptest"
	"testing"

	"go.uber.org/goleak"

	"spillway/internal/testutil"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience is how long tests wait for what happens on a real clock.
const patience = testutil.Patience

var eventually = testutil.Eventually

// serverTLS borrows the certificate that httptest makes for 127.0.0.1.
func serverTLS() *tls.Config {
	s := httptest.NewTLSServer(http.NotFoundHandler())
	defer s.Close()
	return &tls.Config{Certificates: s.TLS.Certificates, NextProtos: []string{"http/1.1"}}
}
