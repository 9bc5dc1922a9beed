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
	"go.uber.org/zap"

	"spillway/internal/apistatus"
	"spillway/internal/http1"
	"spillway/internal/passthrough"
	"spillway/internal/source/sourcetest"
)

// TestPlainGuardOverUnixSocket shows that curl --unix-socket, which sends Host: localhost, passes,
// and that a request's own credentials lift the rules about the proxy's.
func TestPlainGuardOverUnixSocket(t *testing.T) {
	guard := passthrough.NewPlainGuard(nil, nil, false)
	server := passThroughServer(func(ctx *fasthttp.RequestCtx) {
		c := http1.New(http1.ServerOptions{Identity: passthrough.IdentitySelf}).CallOf(ctx)
		ctx.SetStatusCode(http.StatusNoContent)
		if status := guard.Refusal(c.GuardedRequest()); status != nil {
			apistatus.Failure(status).Write(c)
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
	fr := newFront(t, up, frontOptions{identity: passthrough.IdentitySelf})
	server := New(Options{Catalog: sourcetest.Resources{}, Forwarder: fr.forwarder, StallTimeout: patience,
		Metrics: NewMetrics(nil),
		Log:     zap.NewNop()})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() {
		served <- server.Serve(listener,
			ListenerConfig{Identity: passthrough.IdentitySelf, Guard: passthrough.NewPlainGuard(nil, nil, false)})
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
