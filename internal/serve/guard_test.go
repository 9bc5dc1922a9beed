package serve

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/valyala/fasthttp"
)

func TestPlainGuard(t *testing.T) {
	guard := NewPlainGuard([]string{"Proxy.internal", "other:8001", "[fd00::1]"}, []string{"https://Console.example"}, false)
	open := NewPlainGuard(nil, nil, true)
	f := func(g *PlainGuard, r PlainRequest, want string) {
		t.Helper()
		s := g.Refusal(r)
		switch {
		case want == "" && s != nil:
			t.Errorf("%+v: refused: %s", r, s.Message)
		case want != "" && (s == nil || s.Code != 403 || !strings.Contains(s.Message, want)):
			t.Errorf("%+v: %+v; want a refusal that names %s", r, s, want)
		}
	}
	for _, host := range []string{"localhost", "LOCALHOST:8001", "127.0.0.1", "127.0.0.1:1", "[::1]", "[::1]:8001", "proxy.internal", "proxy.internal:80", "other:8001", "[fd00::1]:443"} {
		f(guard, PlainRequest{Host: host, Target: "/"}, "")
	}
	for _, host := range []string{"", "evil.example", "localhost.evil.example", "localhost.", "127.0.0.1.nip.io", "127.0.0.2", "::1", "other", "other:80", "localhost:", "localhost:x", "localhost:80:80", "[::1", "a@localhost", "0.0.0.0"} {
		f(guard, PlainRequest{Host: host, Target: "/"}, "--accept-hosts")
		f(guard, PlainRequest{Host: host, Target: "/"}, fmt.Sprintf("%q", host))
	}
	f(open, PlainRequest{Host: "proxy.internal", Target: "/"}, "--accept-hosts")

	local := func(target string) PlainRequest { return PlainRequest{Host: "localhost", Target: target} }
	with := func(r PlainRequest, origins ...string) PlainRequest { r.Origins = origins; return r }
	f(guard, with(local("/"), "https://console.example"), "")
	f(guard, with(local("/"), "https://console.example:444"), "--accept-origins")
	f(guard, with(local("/"), "http://console.example"), "http://console.example")
	f(guard, with(local("/"), "https://console.example", "https://evil.example"), "https://evil.example")
	f(guard, with(local("/"), "null"), "null")
	f(guard, with(local("/"), ""), "--accept-origins")
	f(guard, with(local("/"), "http://localhost:8001"), "--accept-origins")

	self := func(target string, upgrade bool) PlainRequest {
		return PlainRequest{Host: "localhost", Target: target, AsSelf: true, Upgrade: upgrade}
	}
	for _, target := range []string{
		"/api/v1/namespaces/a/pods/b/exec?command=sh", "/api/v1/namespaces/a/pods/b/%65xec", "/api/v1/namespaces/a/pods/b%2Fexec",
		"/api/v1/namespaces/a/pods/b/portforward", "/api/v1/namespaces/a/pods/b/attach", "/api/v1/namespaces/a/pods/b/proxy/",
		"/api/v1/namespaces/a/services/https:b:443/proxy/x", "/api/v1/nodes/n/proxy/exec", "/api/v1/proxy/nodes/n", "//api/v1/nodes/n/proxy",
	} {
		for _, upgrade := range []bool{false, true} {
			f(guard, self(target, upgrade), "--plain-self-connect")
			f(open, self(target, upgrade), "")
			f(guard, local(target), "")
		}
	}
	f(guard, self("/apis/subresources.kubevirt.io/v1/namespaces/a/vmis/b/console", true), "--plain-self-connect")
	f(guard, self("/apis/subresources.kubevirt.io/v1/namespaces/a/vmis/b/console", false), "")
	f(guard, self("/api/v1/pods?watch=1", true), "")
	f(guard, self("/api/v1/pods?watch=0", true), "--plain-self-connect")
	f(guard, self("/api/v1/namespaces/a/pods/b/log?follow=1", false), "")
	f(guard, self("/api/v1/namespaces/a/configmaps/exec", false), "")
	f(guard, PlainRequest{Host: strings.Repeat("h", 1000), Target: "/"}, "…")
}

// TestPlainGuardOverUnixSocket shows that curl --unix-socket, which sends Host: localhost, passes, and that a request's own
// credentials lift the rules about the proxy's.
func TestPlainGuardOverUnixSocket(t *testing.T) {
	guard := NewPlainGuard(nil, nil, false)
	server := passThroughServer(func(ctx *fasthttp.RequestCtx) {
		c := fastCall{fastResponder: fastResponder{ctx: ctx}, front: Front{Identity: IdentitySelf}}
		if guard.Admit(c, c.guarded()) {
			ctx.SetStatusCode(http.StatusNoContent)
		}
	})
	path := filepath.Join(t.TempDir(), "s")
	listener, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	defer func() {
		if err := server.Shutdown(); err != nil {
			t.Error(err)
		}
		<-served
	}()
	exec := "POST /api/v1/namespaces/a/pods/b/exec HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
	for raw, want := range map[string]int{
		"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n":                        204,
		"GET / HTTP/1.1\r\nHost: evil\r\nConnection: close\r\n":                             403,
		"GET / HTTP/1.1\r\nHost: localhost\r\nOrigin: http://evil\r\nConnection: close\r\n": 403,
		exec:                                 403,
		exec + "Authorization: Bearer x\r\n": 204,
		exec + "sec-websocket-protocol: base64url.bearer.authorization.k8s.io.eA\r\n": 204,
	} {
		conn, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprint(conn, raw+"\r\n")
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil || resp.StatusCode != want {
			t.Errorf("%q: %v, %v; want %d", raw, resp, err, want)
		}
		_ = conn.Close()
	}
}
