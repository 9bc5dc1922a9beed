package serve

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"spillway/internal/source/sourcetest"

	"github.com/valyala/fasthttp"
	"go.uber.org/zap"
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
		return PlainRequest{Host: "localhost", Method: "GET", Target: target, AsSelf: true, Upgrade: upgrade}
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
	f(guard, self("/api/v1/namespaces/a/pods?watch=1", true), "")
	f(guard, self("/api/v1/watch/namespaces/a/pods", true), "")
	f(guard, self("/api/v1/watch/namespaces/a/pods/b", true), "")
	const vmi = "/apis/subresources.kubevirt.io/v1/namespaces/a/virtualmachineinstances/x"
	for _, target := range []string{
		vmi + "/console?watch=1", vmi + "/console?watch", vmi + "/vnc?a&watch=true", vmi + "%2Fconsole?watch=1",
		vmi + "%252Fconsole?watch=1", vmi + "?watch=1",
		vmi + "/console/?watch=1", "/x?watch=1", "/api/v1?watch=1",
		"/apis/subresources.kubevirt.io/v1/watch/namespaces/a/virtualmachineinstances/x/console",
		"/api/v1/namespaces/a?watch=1", "/api/v1/namespaces//pods?watch=1",
		"/api/v1/pods?watch=1" + strings.Repeat("&a", 10_001),
	} {
		f(guard, self(target, true), "an upgrade on path")
		f(open, self(target, true), "")
		f(guard, self(target, false), "")
		f(guard, PlainRequest{Host: "localhost", Method: "GET", Target: target, Upgrade: true}, "")
	}
	f(guard, PlainRequest{Host: "localhost", Method: "POST", Target: "/api/v1/pods?watch=1", AsSelf: true,
		Upgrade: true}, "an upgrade on path")
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
		c := fastCall{fastResponder: fastResponder{ctx: ctx}, server: &http1Server{opts: http1Options{Identity: IdentitySelf}}}
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

// TestRefusedConnectsReachNothing sends what reaches into a workload to a listener that lends its
// own credentials. The refusal ends the connection, so that what the client has sent behind it,
// taking the upgrade for granted, is no request.
func TestRefusedConnectsReachNothing(t *testing.T) {
	up := newTargets()
	fr := newFront(t, up, frontOptions{identity: IdentitySelf})
	server := New(Options{Catalog: sourcetest.Resources{}, Forwarder: fr.forwarder, StallTimeout: patience, Metrics: NewMetrics(nil),
		Log: zap.NewNop()})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() {
		served <- server.Serve(listener, Front{Identity: IdentitySelf, Guard: NewPlainGuard(nil, nil, false)})
	}()
	defer func() {
		_ = server.Close(t.Context())
		<-served
	}()
	const vmi = "/apis/subresources.kubevirt.io/v1/namespaces/a/virtualmachineinstances/x"
	const upgrade = "Connection: Upgrade\r\nUpgrade: websocket\r\n"
	for _, request := range []string{
		"GET " + vmi + "/console?watch=1 HTTP/1.1\r\n" + upgrade, "POST " + vmi + "/console?watch=1 HTTP/1.1\r\n" + upgrade,
		"GET " + vmi + "/console HTTP/1.1\r\n" + upgrade, "GET " + vmi + "/vnc?watch HTTP/1.1\r\n" + upgrade,
		"GET " + vmi + "?watch=true HTTP/1.1\r\n" + upgrade,
		"POST /api/v1/pods?watch=1 HTTP/1.1\r\n" + upgrade,
		"POST /api/v1/namespaces/a/pods/b/exec?command=sh HTTP/1.1\r\nContent-Length: 0\r\n",
		"POST /api/v1/namespaces/a/pods/b/exec?watch=1 HTTP/1.1\r\nContent-Length: 0\r\n" + upgrade,
		"GET /api/v1/nodes/n/proxy/run HTTP/1.1\r\n",
	} {
		answer, ended := converse(t, listener.Addr().String(),
			request+"Host: localhost\r\n\r\n"+strings.Replace(smuggled, "Host: a", "Host: localhost", 1), patience)
		if !strings.HasPrefix(answer, "HTTP/1.1 403 ") || !strings.Contains(answer, "\r\nConnection: close\r\n") ||
			strings.Count(answer, "HTTP/1.1 ") != 1 || !ended {
			t.Errorf("%q: %s", request, answer)
		}
	}
	if n := up.requests.Load(); n > 0 {
		t.Errorf("upstream got %d requests", n)
	}
	for _, request := range []string{"GET /api/v1/pods?watch=1 HTTP/1.1\r\n" + upgrade,
		"GET /api/v1/watch/pods HTTP/1.1\r\n" + upgrade} {
		if answer, _ := converse(t, listener.Addr().String(), request+"Host: localhost\r\n\r\n",
			patience); !strings.HasPrefix(answer, "HTTP/1.1 200 ") {
			t.Errorf("%q: %s", request, answer)
		}
	}
}
