package transport

import (
	"strings"
	"testing"
	"time"

	"spillway/internal/fakeapiserver"
)

// Mirrors notice in seconds that a connection is dead; requests of clients, which are lost with
// theirs, are given the time that client-go gives them. Those of HTTP/1.1 keep as many idle as they
// are meant to.
func TestTransportHealth(t *testing.T) {
	s := fakeapiserver.New(fakeapiserver.Options{HTTP2: true})
	defer s.Close()
	f := factoryOf(t, s.Config())
	for name, kind := range map[string]Purpose{"mirrors": Mirrors, "passing": Passing, "passing HTTP/1.1": PassingHTTP1} {
		made, err := f.Bare(kind)
		if err != nil {
			t.Fatal(err)
		}
		transport := made.current.Load().http
		after, within := 30*time.Second, 15*time.Second
		if name == "mirrors" {
			after, within = pingAfter, pingTimeout
		}
		if transport.HTTP2 == nil || transport.TLSHandshakeTimeout != handshakeTimeout ||
			transport.HTTP2.SendPingTimeout != after || transport.HTTP2.PingTimeout != within {
			t.Errorf("%s notices dead connections at another time", name)
		}
		if strings.HasSuffix(name, "1.1") && transport.MaxIdleConnsPerHost != passThroughIdleLimit {
			t.Errorf("%s keeps %d idle connections", name, transport.MaxIdleConnsPerHost)
		}
	}
}
