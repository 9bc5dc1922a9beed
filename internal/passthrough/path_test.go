package passthrough

import (
	"encoding/hex"
	"net/url"
	"reflect"
	"regexp"
	"strings"
	"testing"
)

func TestPathsAreParsedAsTheAPIServerParsesThem(t *testing.T) {
	f := func(raw, verb, resource, name, subresource string, suspect, connect bool) {
		t.Helper()
		p := parseAPIPath(raw)
		if p.verb != verb || p.resource != resource || p.name != name || p.subresource != subresource ||
			p.isSuspect != suspect || p.isConnect() != connect {
			t.Errorf("%s: %+v, connect %v", raw, p, p.isConnect())
		}
	}
	f("/", "", "", "", "", false, false)
	f("/version", "", "", "", "", false, false)
	f("/api", "", "", "", "", false, false)
	f("/api/v1", "", "", "", "", false, false)
	f("/api/v1/pods", "", "pods", "", "", false, false)
	f("/api/v1/nodes/n/", "", "nodes", "n", "", false, false)
	f("/api/v1/namespaces", "", "namespaces", "", "", false, false)
	f("/api/v1/namespaces/exec", "", "namespaces", "exec", "", false, false)
	f("/api/v1/namespaces/a/status", "", "namespaces", "a", "status", false, false)
	f("/api/v1/namespaces/exec/pods", "", "pods", "", "", false, false)
	f("/api/v1/namespaces/proxy/pods/proxy", "", "pods", "proxy", "", false, false)
	f("/api/v1/namespaces/a/pods/b/log", "", "pods", "b", "log", false, false)
	f("/apis/apps/v1/namespaces/a/deployments/exec/scale", "", "deployments", "exec", "scale", false, false)
	f("/api/v1/watch/namespaces/a/pods/b", "watch", "pods", "b", "", false, false)

	f("/api/v1/namespaces/a/pods/b/exec", "", "pods", "b", "exec", false, true)
	f("/api/v1/namespaces/a/pods/b/attach/", "", "pods", "b", "attach", false, true)
	f("/api/v1/namespaces/a/pods/b/portforward", "", "pods", "b", "portforward", false, true)
	f("/api/v1/namespaces/a/pods/http:b:80/proxy/x/y", "", "pods", "http:b:80", "proxy", false, true)
	f("/api/v1/namespaces/a/services/b/proxy", "", "services", "b", "proxy", false, true)
	f("/api/v1/nodes/n/proxy/run", "", "nodes", "n", "proxy", false, true)
	f("/api/v1/proxy/nodes/n/run", "proxy", "nodes", "n", "", false, true)
	f("/apis/subresources.kubevirt.io/v1/namespaces/a/virtualmachineinstances/b/portforward", "",
		"virtualmachineinstances", "b", "portforward", false, true)

	// Tricks: what any party may read as a connect is one.
	f("/api/v1/namespaces/a/pods/b/%65xec", "", "pods", "b", "exec", false, true)
	f("/api/v1/namespaces/a/pods/b%2Fexec", "", "pods", "b", "exec", true, true)
	f("/api/v1/namespaces/a/pods%2fb%2fexec", "", "pods", "b", "exec", true, true)
	f("/api/v1/namespaces/a/pods/b/%2565xec", "", "pods", "b", "%65xec", true, true)
	f("/api/v1/namespaces/a/pods/b/%252565xec", "", "pods", "b", "%2565xec", true, true)
	f("/api/v1/namespaces/a/pods/b%252Fexec", "", "pods", "b%2Fexec", "", true, true)
	f("/api/v1/namespaces/a/pods//b/exec", "", "pods", "", "b", true, true)
	f("//api/v1/namespaces/a/pods/b/exec", "", "pods", "b", "exec", true, true)
	f("/x/../api/v1/namespaces/a/pods/b/exec", "", "", "", "", true, true)
	f("/api/v1/namespaces/a/pods/b/../b/exec", "", "pods", "b", "..", true, true)
	f("/api/v1/namespaces/a/pods/b/%2e/exec", "", "pods", "b", ".", true, true)
	f(`/api/v1/namespaces/a/pods/b\exec`, "", "pods", `b\exec`, "", true, true)
	f("/api/v1/namespaces/a/pods/b/exec%zz/exec", "", "", "", "", true, true)
	f("/api/v1/namespaces/a/pods/%25zz%252Fb%252Fexec", "", "pods", "%zz%2Fb%2Fexec", "", true, true)
	f("/api/v1/proxy", "", "", "", "", true, true)
	f("/apis/apps/v1/watch/", "", "", "", "", true, false)
	f("/api/v1/namespaces/a/pods/b/%65xec\x01/exec", "", "", "", "", true, true)
	f("/api/v1/namespaces/a/pods/b/%65xec/\x01", "", "", "", "", true, true)
	f("/api/v1/namespaces/a/pods/b/%65xec/%zz", "", "", "", "", true, true)
	f("/api/v1/namespaces//configmaps", "", "configmaps", "", "", true, false)
	f("/api/v1/namespaces/c1/../c2/configmaps", "", "..", "c2", "configmaps", true, false)
}

func TestRequestsHaveTheClassOfTheirVerb(t *testing.T) {
	f := func(method, target, upgrade string, want class, direct bool) {
		t.Helper()
		in := &Inbound{method: method, target: target, proto: "HTTP/1.1", upgrade: upgrade}
		in.classify()
		if in.class != want || in.isDirect() != direct {
			t.Errorf("%s %s: %v, direct %v; want %v, %v", method, target, in.class, in.isDirect(), want, direct)
		}
	}
	f("GET", "/api/v1/pods", "", classRead, true)
	f("GET", "/api/v1/pods?watch=0", "", classRead, true)
	f("GET", "/api/v1/pods?watch=False", "", classRead, true)
	f("GET", "/api/v1/pods?Watch=1", "", classRead, true)
	f("GET", "/api/v1/pods?watch=0&watch=1", "", classRead, true)
	f("GET", "/api/v1/pods?fieldSelector=metadata.name%3Dwatch", "", classRead, true)
	f("HEAD", "/api/v1/pods", "", classRead, true)
	f("OPTIONS", "/api/v1/pods", "", classRead, true)
	for _, method := range []string{"POST", "PUT", "PATCH", "DELETE", "BREW"} {
		f(method, "/api/v1/pods", "", classWrite, true)
	}
	f("GET", "/api/v1/pods?watch", "", classStream, false)
	f("GET", "/api/v1/pods?watch=", "", classStream, false)
	f("GET", "/api/v1/pods?watch=no", "", classStream, false)
	f("GET", "/api/v1/pods?w%61tch=1", "", classStream, false)
	f("GET", "/api/v1/pods?limit=%zz&watch=1", "", classStream, false)
	f("GET", "/api/v1/pods?watch=1", "websocket", classStream, false)
	f("GET", "/apis/g/v1/namespaces/a/vmis/x/console?watch=1", "websocket", classConnect, false)
	f("GET", "/apis/g/v1/namespaces/a/vmis/x/console?watch=1", "", classStream, false)
	f("GET", "/api/v1/watch/pods", "websocket", classStream, false)
	f("POST", "/api/v1/pods?watch=1", "websocket", classConnect, false)
	f("GET", "/api/v1/pods?"+strings.Repeat("&a", 10_001)+"&watch=1", "", classStream, false)
	f("GET", "/api/v1/watch/pods", "", classStream, false)
	f("GET", "/api/v1/namespaces/a/pods/b/log", "", classStream, false)
	f("GET", "/x?follow=true", "", classStream, false)
	f("POST", "/api/v1/namespaces/a/pods/b/exec", "", classConnect, false)
	f("GET", "/api/v1/nodes/a/proxy/logs", "", classConnect, false)
	f("GET", "/api/v1/pods", "h2c", classConnect, false)
}

func TestTheTargetURLKeepsTheEncodingOfThePath(t *testing.T) {
	f := func(base, target, want string) {
		t.Helper()
		b, err := url.Parse(base)
		if err != nil {
			t.Fatal(err)
		}
		u, err := targetURL(b, target)
		if err != nil {
			t.Errorf("%s: %v", target, err)
			return
		}
		if got := u.RequestURI(); got != want || u.Host != b.Host || u.Scheme != b.Scheme {
			t.Errorf("%s on %s: %s (%+v), want %s", target, base, got, u, want)
		}
	}
	for _, target := range []string{"/", "//", "/a", "/a/", "//a", "/a%2Fb", "/a%2fb?c", "/a?", "/a?%zz;", "/{}?{}",
		"/a|b%2F", "/a/../b", "/a?b?c", "///a?b"} {
		f("https://host:6443", target, target)
		f("https://host:6443/", target, target)
		f("https://host/k8s/clusters/c%2Fd", target, "/k8s/clusters/c%2Fd"+target)
	}
	f("https://host", "//{}", "//%7B%7D") // cannot be had raw
	for target, want := range map[string]string{
		"/a b HTTP/1.0": "/a%20b%20HTTP/1.0", "/a?b c#d": "/a?b%20c%23d", "/a#b": "/a%23b", "/ü?ü": "/%C3%BC?%C3%BC",
		"/\xff?\xff": "/%FF?%FF",
		"/ ":         "/%20", "/?% 2": "/?%%202", "/a?b\u2028": "/a?b%E2%80%A8",
	} {
		f("https://host", target, want)
		f("https://host/k8s/clusters/c%2Fd", target, "/k8s/clusters/c%2Fd"+want)
		f("https://host", want, want)
	}
	b := &url.URL{Scheme: "https", Host: "host"}
	for _, target := range []string{"/%zz", "x", "", "/a\r\nb", "/a\tb", "/a\x00", "/?\x7f", "/% 2"} {
		if u, err := targetURL(b, target); err == nil {
			t.Errorf("%q became %v", target, u)
		}
	}
}

// FuzzVisible: what is sent instead of a target that a request line cannot carry is read by
// upstream as the same.
func FuzzVisible(f *testing.F) {
	for _, target := range []string{"/a b", "/%zz?% 2", "/a#b?c#d", "/ü", "/?a=%\xff", "/?a=%2\xff1", "/%2 0",
		"/?a;b c=%+ d"} {
		f.Add(target)
	}
	f.Fuzz(func(t *testing.T, target string) {
		in, err := url.ParseRequestURI(target)
		if err != nil || target[0] != '/' {
			return
		}
		sent := VisibleTarget(target)
		out, err := url.ParseRequestURI(sent)
		if err != nil {
			t.Fatalf("%q became %q: %v", target, sent, err)
		}
		if out.Path != in.Path || !reflect.DeepEqual(out.Query(), in.Query()) {
			t.Errorf("%q became %q: %q %v, was %q %v", target, sent, out.Path, out.Query(), in.Path, in.Query())
		}
		if i := strings.IndexFunc(sent, func(r rune) bool { return r <= ' ' || r >= 0x7f || r == '#' }); i >= 0 {
			t.Errorf("%q became %q", target, sent)
		}
	})
}

// FuzzDecodeFully: one pass decodes as much as any number of lenient decoders, one behind the
// other.
func FuzzDecodeFully(f *testing.F) {
	for _, path := range []string{"%252e%25252E", "%25zz%252f", "%%32%35", "%2%35f", "%25%32%35", "%", "%2", "%%%"} {
		f.Add(path)
	}
	escape := regexp.MustCompile("%[0-9a-fA-F]{2}")
	f.Fuzz(func(t *testing.T, path string) {
		if len(path) > 1<<10 {
			return
		}
		want := path
		for {
			next := escape.ReplaceAllStringFunc(want, func(e string) string {
				b, _ := hex.DecodeString(e[1:])
				return string(b)
			})
			if next == want {
				break
			}
			want = next
		}
		if got := decodeFully(path); got != want {
			t.Errorf("%q: %q, want %q", path, got, want)
		}
	})
}

// A path that is encoded half a million times over is decoded in one pass.
func TestDecodeFullyIsLinear(t *testing.T) {
	if got := decodeFully("%" + strings.Repeat("25", 1<<19) + "2e"); got != "." {
		t.Errorf("%.20q", got)
	}
}

// What is kept of a path does not grow with its segments.
func TestPathsOfManySegments(t *testing.T) {
	for _, raw := range []string{"/api/v1/nodes" + strings.Repeat("/a", 10_000), strings.Repeat("/%2f", 10_000),
		strings.Repeat("/a", 10_000) + "%zz"} {
		if n := testing.AllocsPerRun(10, func() { parseAPIPath(raw) }); n > 6 {
			t.Errorf("%.20s…: %v allocations", raw, n)
		}
	}
}
