package passthrough

import (
	"net/http"
	"testing"
)

// named is a transport with a name, so that tests can compare it.
type named string

func (named) RoundTrip(*http.Request) (*http.Response, error) { panic("BUG: asked") }

func TestTheTransportSuitsTheRequest(t *testing.T) {
	transports := Transports{Any: named("any"), HTTP1: named("HTTP/1.1"), Fresh: named("fresh")}
	f := func(want named, credentials bool, method, target, proto string, length int64, upgrade string) {
		t.Helper()
		in := &Inbound{method: method, target: target, proto: proto, contentLength: length, upgrade: upgrade}
		in.classify()
		if got := transports.carrier(in, credentials); got != want {
			t.Errorf("%s %s in %s, %d bytes, upgrade %q, credentials %t: %v, want %v", method, target, proto, length, upgrade,
				credentials, got, want)
		}
	}
	const maps, exec, service = "/api/v1/namespaces/a/configmaps", "/api/v1/namespaces/a/pods/b/exec",
		"/api/v1/namespaces/a/services/b/proxy/"
	for _, credentials := range []bool{true, false} {
		shared := named("any")
		if !credentials {
			shared = "HTTP/1.1"
		}
		for _, proto := range []string{"HTTP/1.1", "HTTP/2.0"} {
			f("HTTP/1.1", credentials, "GET", maps, proto, 0, "")
			f("HTTP/1.1", credentials, "GET", maps, proto, 5, "")
			f(shared, credentials, "GET", maps+"?watch=1", proto, 0, "")
			f(shared, credentials, "POST", maps, proto, 5, "")
			f(shared, credentials, "POST", maps, proto, OwnedBodyLimit, "")
			f(shared, credentials, "DELETE", maps, proto, 0, "")
			f(shared, credentials, "GET", service, proto, 0, "")
			f("fresh", credentials, "POST", maps, proto, OwnedBodyLimit+1, "")
			f("fresh", credentials, "POST", maps, proto, -1, "")
			f("fresh", credentials, "GET", maps, proto, -1, "")
			f("fresh", credentials, "GET", maps+"?watch=1", proto, 5, "")
			f("fresh", credentials, "POST", service, proto, 5, "")
		}
		f("HTTP/1.1", credentials, "GET", maps, "HTTP/1.0", 0, "")
		f("fresh", credentials, "POST", maps, "HTTP/1.0", 5, "")
		f("HTTP/1.1", credentials, "POST", exec, "HTTP/1.1", 0, "SPDY/3.1")
		f("HTTP/1.1", credentials, "POST", exec, "HTTP/1.1", 5, "SPDY/3.1")
		f("HTTP/1.1", credentials, "POST", exec, "HTTP/1.1", -1, "SPDY/3.1")
	}
}
