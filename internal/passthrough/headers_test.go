package passthrough

import (
	"net/http"
	"reflect"
	"testing"
)

func TestOutgoingHeader(t *testing.T) {
	f := func(in http.Header, peer, upgrade string, want http.Header) {
		t.Helper()
		before := in.Clone()
		r := &Inbound{Header: in, peer: peer, upgrade: upgrade}
		if got := outgoingHeader(r, (&Forwarder{}).isClaimed); !reflect.DeepEqual(got, want) {
			t.Errorf("%v\n got %v\nwant %v", in, got, want)
		}
		if !reflect.DeepEqual(in, before) {
			t.Errorf("the client's headers were changed to %v", in)
		}
	}
	f(http.Header{}, "", "", http.Header{"User-Agent": {""}})
	f(http.Header{
		"User-Agent": {"kubectl"}, "Authorization": {"Bearer x"}, "Accept": {"a", "b"}, "Impersonate-User": {"bob"},
		"Origin":     {"o"},
		"Connection": {"close, X-Private", "keep-alive"}, "X-Private": {"1"}, "Keep-Alive": {"5"}, "Te": {"trailers"},
		"Trailer":           {"X"},
		"Transfer-Encoding": {"chunked"}, "Upgrade": {"h2c"}, "Proxy-Connection": {"x"}, "Proxy-Authorization": {"x"},
		"Expect": {"100-continue"},
		"Host":   {"x"}, "Content-Length": {"3"}, "Forwarded": {"for=x"}, "X-Forwarded-Host": {"x"},
		"X-Forwarded-Proto": {"x"},
		"X-Remote-User":     {"admin"}, "X-Remote-Group": {"system:masters"}, "X-Remote-Extra-Scopes": {"x"},
		"X-Remote-Uid": {"1"},
	}, "10.0.0.1", "", http.Header{
		"User-Agent": {"kubectl"}, "Authorization": {"Bearer x"}, "Accept": {"a", "b"}, "Impersonate-User": {"bob"},
		"Origin":          {"o"},
		"X-Forwarded-For": {"10.0.0.1"},
	})
	f(http.Header{"X-Forwarded-For": {"1.1.1.1", "2.2.2.2"}, "User-Agent": {"a"}}, "::1", "",
		http.Header{"X-Forwarded-For": {"1.1.1.1, 2.2.2.2, ::1"}, "User-Agent": {"a"}})
	f(http.Header{"X-Forwarded-For": {"1.1.1.1"}, "User-Agent": {"a"}}, "", "",
		http.Header{"X-Forwarded-For": {"1.1.1.1"}, "User-Agent": {"a"}})
	f(http.Header{"Connection": {"Upgrade"}, "Upgrade": {"SPDY/3.1"}, "User-Agent": {"a"}}, "", "SPDY/3.1",
		http.Header{"Connection": {"Upgrade"}, "Upgrade": {"SPDY/3.1"}, "User-Agent": {"a"}})
}
