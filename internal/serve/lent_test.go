package serve

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	authenticationv1 "k8s.io/api/authentication/v1"

	"spillway/internal/auth"
	"spillway/internal/passthrough"
	"spillway/internal/plan"
)

// targets counts the requests that an upstream gets, and hands on what they ask for.
type targets struct {
	requests atomic.Int32
	sent     chan string
}

func newTargets() *targets { return &targets{sent: make(chan string, 1000)} }

func (a *targets) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.requests.Add(1)
	http.SetCookie(w, &http.Cookie{Name: "session", Value: r.Header.Get("Authorization")})
	w.Header().Set("Content-Type", "text/plain")
	a.sent <- r.RequestURI
}

// ask sends a request whose head is made of what is given, byte for byte, over HTTP/1.1 or 2.
// Without an answer, the stream was reset.
func (f *front) ask(t *testing.T, method, target string, header ...string) *http.Response {
	t.Helper()
	if f.http2 {
		return f.askHTTP2(t, method, target, header...)
	}
	conn, r := f.dial(t)
	lines := ""
	for i := 0; i < len(header); i += 2 {
		lines += header[i] + ": " + header[i+1] + "\r\n"
	}
	fmt.Fprintf(conn, "%s %s HTTP/1.1\r\nHost: localhost\r\n%s\r\n", method, target, lines)
	resp, err := http.ReadResponse(r, nil)
	if err != nil {
		t.Fatalf("%s: %v", target, err)
	}
	body, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<10))
	resp.Body = io.NopCloser(bytes.NewReader(body))
	_ = conn.Close()
	return resp
}

func (f *front) askHTTP2(t *testing.T, method, target string, header ...string) *http.Response {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	tcp, err := dialFront(&front{addr: f.addr})
	must(err)
	secure := f.tls.Clone()
	secure.ServerName, secure.NextProtos = "example.com", []string{"h2"}
	conn := tls.Client(tcp, secure)
	defer conn.Close()
	must(conn.SetDeadline(time.Now().Add(patience)))
	_, err = io.WriteString(conn, http2.ClientPreface)
	must(err)
	framer := http2.NewFramer(conn, conn)
	framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	must(framer.WriteSettings())
	var block bytes.Buffer
	encoder := hpack.NewEncoder(&block)
	fields := append([]string{":method", method, ":scheme", "https", ":authority", "localhost", ":path", target},
		header...)
	for i := 0; i < len(fields); i += 2 {
		must(encoder.WriteField(hpack.HeaderField{Name: strings.ToLower(fields[i]), Value: fields[i+1]}))
	}
	must(framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block.Bytes(), EndHeaders: true,
		EndStream: true}))
	answer := &http.Response{Header: http.Header{}}
	var body bytes.Buffer
	for {
		frame, err := framer.ReadFrame()
		must(err)
		switch f := frame.(type) {
		case *http2.RSTStreamFrame:
			return nil
		case *http2.MetaHeadersFrame:
			_, err := fmt.Sscan(f.PseudoValue("status"), &answer.StatusCode)
			must(err)
			for _, field := range f.RegularFields() {
				answer.Header.Add(field.Name, field.Value)
			}
		case *http2.DataFrame:
			body.Write(f.Data())
		}
		if h := frame.Header(); h.StreamID == 1 && h.Flags.Has(http2.FlagDataEndStream) {
			answer.Body = io.NopCloser(&body)
			return answer
		}
	}
}

// mallory is an identity that a header carries.
func mallory(t *testing.T) *auth.Impersonation {
	t.Helper()
	as, err := auth.NewImpersonation(auth.NewIdentity(authenticationv1.UserInfo{Username: "mallory"}))
	if err != nil {
		t.Fatal(err)
	}
	return as
}

// lenders are fronts whose upstream is below a path, and where requests without credentials are
// lent some.
func lenders(t *testing.T, run func(t *testing.T, fr *front, up *targets, self bool)) {
	as := mallory(t)
	for name, o := range map[string]frontOptions{
		"self": {identity: passthrough.IdentitySelf}, "self over TLS": {identity: passthrough.IdentitySelf, tls: true},
		"self over HTTP/2": {identity: passthrough.IdentitySelf, http2: true},
		"impersonator":     {as: as}, "impersonator over TLS": {as: as, tls: true},
	} {
		t.Run(name, func(t *testing.T) {
			up := newTargets()
			o.mutate = func(f *passthrough.ForwarderOptions) {
				f.As = f.Self
				f.Base.Path = "/k8s/clusters/c-1"
			}
			run(t, newFront(t, up, o), up, o.as == nil)
		})
	}
}

// straying are paths that some party may read as one outside of what they are below.
var straying = []string{
	"/../../../v3/secrets", "/..", "/.", "/api/..", "/api/../../x", "/api/v1/./pods", "/./..//../", "/%2e%2e/%2e%2E/v3",
	"/%2e./x", "/.%2e/x",
	"/%252e%252e/x", "/%25252e./x", "/%25%32%65%2e/x", "/%%32%65%%32%65/x", "/..%2fx", "/..%2Fx", "/api%2f..%2f..%2fx",
	"/a%2Fb", "/a%252Fb", "/a%25252fb",
	`/..\..\x`, `/a\b`, "/..%5cx", "/..%5C..%5cx", "/..%255c..%255cx", "/..;/x", "/..;a=b/x", "/.;/x", "/..%3b/x",
	"/..%253bx/y", "/%2e%2e;/x",
	"/..%00/x", "/..%0a/x", "/a%0d%0ab", "/..%09/x", "/..%7f/x", "/%c0%ae%c0%ae/x", "/..%c0%afx", "/%e0%80%ae/x", "/%ff",
	"/%25zz/..%252fx", "/x/%2525zz%252F..", "/api/v1/namespaces/a/services/b/proxy/../../../../../../../x",
}

func TestLentCredentialsStayBelowTheBasePath(t *testing.T) {
	t.Parallel()
	lenders(t, func(t *testing.T, fr *front, up *targets, _ bool) {
		for _, path := range straying {
			for _, query := range []string{"", "?watch=1"} {
				resp := fr.ask(t, "GET", path+query)
				if resp == nil { // it was no path in the first place
					continue
				}
				body, _ := io.ReadAll(resp.Body)
				if resp.StatusCode != http.StatusBadRequest || !bytes.Contains(body, []byte("400")) &&
					!bytes.Contains(body, []byte("send your own Authorization")) {
					t.Errorf("%s: %d %s", path+query, resp.StatusCode, body)
				}
			}
		}
		if n := up.requests.Load(); n > 0 {
			t.Errorf("upstream got %d requests, the last for %s", n, <-up.sent)
		}
		for _, target := range []string{
			"/", "/api/v1/pods", "/api/v1/pods/", "/api/v1//pods", "//x", "/api/v1/namespaces/a/configmaps/a.b",
			"/api/v1/namespaces/a/configmaps/...",
			"/apis/rbac.authorization.k8s.io/v1/clusterroles/system:a%3Ab", "/%61pi/v1/pods", "/a%2eb", "/x;y",
			"/%C3%BC", "/a%25", "/x?a=/../..%2f", "/version",
		} {
			resp := fr.ask(t, "GET", target)
			if resp.StatusCode != http.StatusOK {
				t.Fatalf("%s: %d", target, resp.StatusCode)
			}
			if got := await(t, up.sent, "the request"); got != "/k8s/clusters/c-1"+target {
				t.Errorf("upstream got %s, want it below the base: %s", got, target)
			}
			if cookies := resp.Header["Set-Cookie"]; len(cookies) > 0 {
				t.Errorf("%s: the client was handed a session of the proxy's: %q", target, cookies)
			}
		}
		// A service behind the API server has cookies of its own.
		resp := fr.ask(t, "GET", "/api/v1/namespaces/a/services/b/proxy/x")
		if await(t, up.sent, "the request"); len(resp.Header["Set-Cookie"]) != 1 {
			t.Errorf("a service's cookie was dropped: %v", resp.Header)
		}
	})
}

// Whose credentials are the client's own is upstream's to judge, wherever it goes.
func TestOwnCredentialsGoAnywhere(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]frontOptions{"self": {identity: passthrough.IdentitySelf},
		"self over HTTP/2": {identity: passthrough.IdentitySelf, http2: true}} {
		t.Run(name, func(t *testing.T) {
			up := newTargets()
			o.mutate = func(f *passthrough.ForwarderOptions) { f.Base.Path = "/k8s/clusters/c-1" }
			fr := newFront(t, up, o)
			for _, path := range straying {
				if strings.Contains(path, "%%") { // no path at all
					continue
				}
				resp := fr.ask(t, "GET", path, "Authorization", "Bearer x")
				if resp.StatusCode != http.StatusOK || await(t, up.sent, "the request") != "/k8s/clusters/c-1"+path {
					body, _ := io.ReadAll(resp.Body)
					t.Fatalf("%s: %d %s", path, resp.StatusCode, body)
				}
				if len(resp.Header["Set-Cookie"]) != 1 {
					t.Errorf("%s: the client's own cookie was dropped", path)
				}
			}
		})
	}
}

// A header that may send a front elsewhere goes with the client's own credentials alone.
func TestLentCredentialsGoWithoutHeadersThatNamePlaces(t *testing.T) {
	t.Parallel()
	placing := []string{
		"X-Original-Url", "X-Original-Uri", "X-Rewrite-Url", "X-Forwarded-Uri", "X-Forwarded-Path",
		"X-Forwarded-Prefix", "X-Forwarded-Server", "X-Http-Method-Override",
		"X-Http-Method", "X-Method-Override", "X-Envoy-Original-Path", "X-Ms-Original-Url", "X-Waws-Unencoded-Url",
	}
	header := []string{"X-Ordinary", "a"}
	for _, key := range placing {
		header = append(header, key, "/v3/secrets")
	}
	for name, o := range map[string]frontOptions{
		"self": {identity: passthrough.IdentitySelf}, "HTTP/2": {identity: passthrough.IdentitySelf, http2: true},
		"impersonator": {as: mallory(t)},
	} {
		t.Run(name, func(t *testing.T) {
			seen := make(recorder, 1)
			o.mutate = func(f *passthrough.ForwarderOptions) { f.As = f.Self }
			fr := newFront(t, seen, o)
			for _, target := range []string{"/a", "/a?watch=1"} {
				fr.ask(t, "GET", target, header...)
				got := await(t, seen, "the request")
				for _, key := range placing {
					if got[key] != nil {
						t.Errorf("%s: upstream got %s", target, key)
					}
				}
				if got.Get("X-Ordinary") != "a" || got.Get("X-Forwarded-For") == "" {
					t.Errorf("%s: upstream got %v", target, got)
				}
				if o.as != nil {
					continue
				}
				fr.ask(t, "GET", target, append([]string{"Authorization", "Bearer x"}, header...)...)
				got = await(t, seen, "the request")
				for _, key := range placing {
					if got.Get(key) != "/v3/secrets" {
						t.Errorf("%s: the client's own %s was dropped", target, key)
					}
				}
			}
		})
	}
}

// Of a query of which parties may read different parts nothing is sent with credentials that are
// lent, and all of it with the client's own.
func TestLentCredentialsAreForWhatWasRead(t *testing.T) {
	t.Parallel()
	lenders(t, func(t *testing.T, fr *front, up *targets, self bool) {
		const path = "/api/v1/namespaces/a/configmaps?labelSelector=a"
		for n, refused := range map[int]bool{plan.QueryParametersLimit - 1: false, plan.QueryParametersLimit: true,
			3 * plan.QueryParametersLimit: true} {
			for _, watch := range []string{"", "&watch=1"} {
				target := path + strings.Repeat("&a", n-strings.Count(watch, "&")) + watch
				resp := fr.ask(t, "GET", target)
				if refused != (resp.StatusCode == http.StatusBadRequest) {
					t.Errorf("%d parameters: %d", n+1, resp.StatusCode)
				}
				if !refused {
					await(t, up.sent, "the request")
				}
				if !self {
					continue // an impersonator's requests have no credentials of their own
				}
				if resp = fr.ask(t, "GET", target, "Authorization", "Bearer x"); resp.StatusCode != http.StatusOK ||
					await(t, up.sent, "the request") != "/k8s/clusters/c-1"+target {
					t.Errorf("%d parameters with credentials: %d", n+1, resp.StatusCode)
				}
			}
		}
	})
}

// What a request line or a header of HTTP/1.1 cannot carry is sent encoded, or refused.
func TestRequestLinesCarryWhatWasAsked(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]frontOptions{"HTTP/1.1": {}, "TLS": {tls: true}, "HTTP/2": {http2: true}} {
		t.Run(name, func(t *testing.T) {
			up := newTargets()
			fr := newFront(t, up, o)
			for _, way := range []string{"", "&watch=1"} { // to the transport directly, and by net/http's proxy
				for target, want := range map[string]string{
					"/api/v1/secrets HTTP/1.0": "/api/v1/secrets%20HTTP/1.0", "/a?b c HTTP/1.1": "/a?b%20c%20HTTP/1.1", "/a ": "/a%20",
					"/a#b": "/a%23b", "/a?b#c": "/a?b%23c", "/ü?ü": "/%C3%BC?%C3%BC", "/\xff?\xc0\xae": "/%FF?%C0%AE",
					"/\u2028":       "/%E2%80%A8",
					"/a\"<>{}|^`\\": "/a\"<>{}|^`\\", "/a?%zz": "/a?%zz",
				} {
					if !o.http2 && strings.Contains(target, " ") {
						continue // a second blank is no request line: refused below
					}
					if !strings.Contains(target, "?") && way != "" {
						continue
					}
					resp := fr.ask(t, "GET", target+way, "X-Ordinary", "a\tb \xff")
					if resp == nil || resp.StatusCode != http.StatusOK {
						t.Fatalf("%q: %v", target, resp)
					}
					if got := await(t, up.sent, "the request"); got != want+way {
						t.Errorf("%q: upstream got %q, want %q", target, got, want+way)
					}
				}
			}
			before := up.requests.Load()
			bad := [][]string{
				{"GET", "/a\r\nX: y"}, {"GET", "/a\tb"}, {"GET", "/a\x00b"}, {"GET", "/a?\x00"}, {"GET", "/a?b\x7f"},
				{"GET", "/a\x1b[2J"}, {"GET", "/%zz"},
				{"GET", "http://other/x"}, {"GET", "//\x01"}, {"G T", "/a"}, {"GET /x", "/a"}, {"GET\t", "/a"},
				{"G\x00T", "/a"}, {"", "/a"}, {"GÄT", "/a"}, {"G(T", "/a"},
				{"GET", "/a", "X-A", "b\x00"}, {"GET", "/a", "X-A", "b\x01c"}, {"GET", "/a", "X-A", "b\x7f"},
				{"GET", "/a", "X A", "b"}, {"GET", "/a", "X\x01", "b"}, {"GET", "/a", "Xä", "b"},
				{"GET", "/a", "Connection", "Upgrade", "Upgrade", "ü"},
				{"GET", "/a", "Connection", "Upgrade", "Upgrade", "a\tb"}, {"CONNECT", "/a"}, {"OPTIONS", "*"},
				{"GET", "a"}, {"GET", ""}, {"GET", "/a?watch=1", "X-A", "b\x01c"}, {"POST", "/a", "X-A", "b\x01c"},
			}
			if !o.http2 {
				bad = append(bad, []string{"GET", "/a b"}, []string{"GET", "/a?b c"},
					[]string{"GET", "/a HTTP/1.1\r\nA: b\r\n\r\nGET /c"})
			}
			for _, b := range bad {
				if resp := fr.ask(t, b[0], b[1], b[2:]...); resp != nil && resp.StatusCode != http.StatusBadRequest {
					t.Errorf("%q: %d", b, resp.StatusCode)
				}
			}
			if n := up.requests.Load() - before; n > 0 {
				t.Errorf("upstream got %d requests, one for %q", n, <-up.sent)
			}
		})
	}
}
