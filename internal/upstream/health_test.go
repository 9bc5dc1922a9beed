package upstream

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"spillway/internal/kubetest"
)

// Mirrors notice in seconds that a connection is dead; requests of clients, which are lost with theirs, are given the time that client-go
// gives them. Those of HTTP/1.1 keep as many idle as they are meant to.
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
		after, within := 30*time.Second, 15*time.Second
		if name == "client" {
			after, within = pingAfter, pingTimeout
		}
		if transport == nil || transport.HTTP2 == nil || transport.TLSHandshakeTimeout != handshakeTimeout ||
			transport.HTTP2.SendPingTimeout != after || transport.HTTP2.PingTimeout != within {
			t.Errorf("%s notices dead connections at another time", name)
		}
		if strings.HasSuffix(name, "1.1") && transport.MaxIdleConnsPerHost != passThroughIdle {
			t.Errorf("%s keeps %d idle connections", name, transport.MaxIdleConnsPerHost)
		}
	}
}
