package serve

import (
	"fmt"
	"io"
	"net/http"
	"reflect"
	"strings"
	"testing"

	"spillway/internal/passthrough"
)

// recorder remembers the headers of the last request.
type recorder chan http.Header

func (r recorder) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	if req.Header.Get("Upgrade") != "" {
		r <- req.Header
		switching(w, req)
		return
	}
	_, _ = io.Copy(io.Discard, req.Body)
	h := req.Header.Clone()
	h.Set("Host", req.Host)
	r <- h
}

// send writes raw and returns the status of the answer and its body, or 0 if the connection was
// closed without one.
func (f *front) send(t *testing.T, raw string) (int, string) {
	t.Helper()
	conn, r := f.dial(t)
	defer conn.Close()
	fmt.Fprint(conn, raw)
	resp, err := http.ReadResponse(r, nil)
	if err != nil {
		return 0, ""
	}
	if resp.StatusCode == http.StatusSwitchingProtocols {
		return resp.StatusCode, ""
	}
	b, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, string(b)
}

// ways are three requests that take the direct and the streamed way, with a place for headers.
var ways = []string{
	"GET /x HTTP/1.1\r\nHost: evil\r\n%s\r\n",
	"GET /x?watch=1 HTTP/1.1\r\nHost: evil\r\n%s\r\n",
	"PUT /x HTTP/1.1\r\nHost: evil\r\nTransfer-Encoding: chunked\r\n%s\r\n2\r\nhi\r\n0\r\nAuthorization: Bearer " +
		"trailer\r\n\r\n",
	"POST /x HTTP/1.1\r\nHost: evil\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n%s\r\n",
}

func TestForwardHeaders(t *testing.T) {
	seen := make(recorder, 1)
	fr := newFront(t, seen, frontOptions{})
	for _, way := range ways {
		code, body := fr.send(t,
			fmt.Sprintf(way, "Authorization: Bearer x\r\nimpersonate-user: bob\r\nX-Remote-User: admin\r\nx-remote-group: "+
				"system:masters\r\nX-A: 1\r\nX-A: 2\r\nX-Forwarded-For: 9.9.9.9\r\n"))
		if code != 200 && code != 101 {
			t.Fatalf("%q: %d %s", way, code, body)
		}
		got := await(t, seen, "the request")
		want := http.Header{"Authorization": {"Bearer x"}, "Impersonate-User": {"bob"}, "X-A": {"1", "2"},
			"X-Forwarded-For": {"9.9.9.9, 127.0.0.1"}}
		for key, values := range want {
			if !reflect.DeepEqual(got[key], values) {
				t.Errorf("%q: %s is %q, want %q", way, key, got[key], values)
			}
		}
		for _, key := range []string{"X-Remote-User", "X-Remote-Group", "User-Agent", "Accept-Encoding", "Trailer"} {
			if got[key] != nil {
				t.Errorf("%q: upstream got %s: %q", way, key, got[key])
			}
		}
		if host := got.Get("Host"); host != "" && host != strings.TrimPrefix(fr.upstream.URL, "http://") {
			t.Errorf("%q: upstream's Host is %q", way, host)
		}
	}
}

func TestForwardRefusesToDropIdentity(t *testing.T) {
	fr := newFront(t, make(recorder), frontOptions{})
	for _, way := range ways {
		for _, name := range []string{"Authorization", "authorization", "Impersonate-User", "impersonate-group",
			"Impersonate-Extra-Scopes", "X-Remote-User", "x-remote-anything"} {
			for _, line := range []string{"Connection: " + name, "Connection: close , " + name + ",x",
				"Connection: close\r\nConnection: " + name} {
				code, body := fr.send(t, fmt.Sprintf(way, line+"\r\n"))
				if code != 400 || !strings.Contains(body, "the Connection header must not name") {
					t.Errorf("%q in %q: %d %s", line, way, code, body)
				}
			}
		}
	}
}

// The token of a browser is in a header that only WebSockets have: to name it would lose the token,
// and the request be anonymous upstream.
func TestForwardRefusesToDropBrowsersTokens(t *testing.T) {
	seen := make(recorder, 1)
	fr := newFront(t, seen, frontOptions{})
	bearer := "Sec-WebSocket-Protocol: v4.channel.k8s.io, base64url.bearer.authorization.k8s.io.eA\r\n"
	for _, way := range ways {
		code, body := fr.send(t, fmt.Sprintf(way, bearer+"Connection: sec-websocket-PROTOCOL\r\n"))
		if code != 400 || !strings.Contains(body, "the Connection header must not name") {
			t.Errorf("%q: %d %s", way, code, body)
		}
	}
	code, body := fr.send(t, fmt.Sprintf(ways[0],
		"Sec-WebSocket-Protocol: v4.channel.k8s.io\r\nConnection: Sec-WebSocket-Protocol\r\n"))
	if code != 200 {
		t.Errorf("without a token: %d %s", code, body)
	}
	await(t, seen, "the request")
}

func TestForwardAsSelf(t *testing.T) {
	seen := make(recorder, 1)
	fr := newFront(t, seen, frontOptions{identity: passthrough.IdentitySelf})
	bearer := "Sec-WebSocket-Protocol: v4.channel.k8s.io, base64url.bearer.authorization.k8s.io.eA"
	for _, way := range ways {
		for header, want := range map[string][]string{
			"X-A: 1":                  {"Bearer own"},
			"Authorization: Bearer x": {"Bearer x"},
			"Authorization: Bearer x\r\nImpersonate-User: bob": {"Bearer x"},
			"Authorization:":       {""},
			"X-Remote-User: admin": {"Bearer own"},
			bearer:                 nil,
		} {
			if code, body := fr.send(t, fmt.Sprintf(way, header+"\r\n")); code != 200 && code != 101 {
				t.Fatalf("%q in %q: %d %s", header, way, code, body)
			}
			if got := await(t, seen, "the request"); !reflect.DeepEqual(got["Authorization"], want) ||
				got["X-Remote-User"] != nil {
				t.Errorf("%q in %q: upstream got %v, want Authorization %q", header, way, got, want)
			}
		}
		for _, name := range []string{"Impersonate-User", "impersonate-group", "Impersonate-Uid"} {
			code, body := fr.send(t, fmt.Sprintf(way, name+": system:masters\r\n"))
			if code != 403 || !strings.Contains(body, "send your own Authorization") {
				t.Errorf("%s in %q: %d %s", name, way, code, body)
			}
		}
	}
}

func TestForwardWithoutSelf(t *testing.T) {
	fr := newFront(t, make(recorder),
		frontOptions{identity: passthrough.IdentitySelf, mutate: func(o *passthrough.ForwarderOptions) {
			o.Self = passthrough.Transports{}
		}})
	for _, way := range ways {
		if code, body := fr.send(t, fmt.Sprintf(way, "")); code != 403 || !strings.Contains(body, "no identity of its own") {
			t.Errorf("%q: %d %s", way, code, body)
		}
	}
}
