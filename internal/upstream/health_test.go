package upstream

import (
	"net/http"
	"strings"
	"testing"

	"spillway/internal/kubetest"
)

// Own transports watch over the health of their connections, and those of HTTP/1.1 keep as many idle as they are meant to.
func TestTransportHealth(t *testing.T) {
	s := kubetest.New(kubetest.Options{HTTP2: true})
	defer s.Close()
	c := clientFor(t, s.Config())
	self, err := Self(s.Config())
	if err != nil {
		t.Fatal(err)
	}
	selfHTTP1, err := SelfHTTP1(s.Config())
	if err != nil {
		t.Fatal(err)
	}
	bare, err := Forward(s.Config())
	if err != nil {
		t.Fatal(err)
	}
	for name, rt := range map[string]http.RoundTripper{"client": c.http.Transport, "self": self, "self HTTP/1.1": selfHTTP1, "bare": bare} {
		transport := transportBeneath(rt)
		if transport == nil || transport.HTTP2 == nil || transport.HTTP2.SendPingTimeout != pingAfter || transport.TLSHandshakeTimeout != handshakeTimeout {
			t.Errorf("%s does not notice dead connections", name)
		}
		if strings.HasSuffix(name, "1.1") && transport.MaxIdleConnsPerHost != passThroughIdle {
			t.Errorf("%s keeps %d idle connections", name, transport.MaxIdleConnsPerHost)
		}
	}
}
