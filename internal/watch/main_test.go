package watch

import (
	"crypto/tls"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience is how long tests wait for what happens on a real clock.
const patience = time.Minute

// serverTLS borrows the certificate that httptest makes for 127.0.0.1.
func serverTLS() *tls.Config {
	s := httptest.NewTLSServer(http.NotFoundHandler())
	defer s.Close()
	return &tls.Config{Certificates: s.TLS.Certificates, NextProtos: []string{"http/1.1"}}
}

// eventually waits until a condition holds.
func eventually(t *testing.T, what string, cond func() bool) {
	t.Helper()
	for until := time.Now().Add(patience); !cond(); time.Sleep(time.Millisecond) {
		if time.Now().After(until) {
			t.Fatalf("waited %v for %s", patience, what)
		}
	}
}
