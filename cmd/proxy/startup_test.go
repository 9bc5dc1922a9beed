package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"spillway/internal/config"
	"spillway/internal/fakeapiserver"
	"spillway/internal/upstream/transport"
)

// freeAddresses are n different addresses where nothing listens.
func freeAddresses(t *testing.T, n int) []string {
	t.Helper()
	addresses := make([]string, n)
	for i := range addresses {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close() // when all are chosen
		addresses[i] = l.Addr().String()
	}
	return addresses
}

// waiting is the program, started while upstream is unreachable, once it lives.
func waiting(t *testing.T, up *fakeapiserver.Server, change func(*config.Settings)) *proxy {
	t.Helper()
	free := freeAddresses(t, 3) // while upstream still has its own
	plain, secure, metrics := free[0], free[1], free[2]
	up.Down()
	p := launched(t, up, func(o *config.Settings) {
		o.Listen, o.ListenTLS, o.MetricsListen = plain, secure, metrics
		if change != nil {
			change(o)
		}
	})
	p.plain, p.tls, p.metrics = "http://"+plain, "https://"+secure, "http://"+metrics
	eventually(t, "it to live", func() bool {
		p.stillRuns()
		response, err := http.Get(p.metrics + "/livez")
		if err != nil {
			return false
		}
		defer response.Body.Close()
		return response.StatusCode == http.StatusOK
	})
	return p
}

// asked is the answer to a request that is not answered from memory, with its Retry-After.
func (p *proxy) asked(method, url string) (code int, retryAfter, body string) {
	p.t.Helper()
	//nolint:gosec // a certificate that was just made up
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	defer transport.CloseIdleConnections()
	r, err := http.NewRequestWithContext(p.t.Context(), method, url, strings.NewReader("{}"))
	if err != nil {
		p.t.Fatal(err)
	}
	response, err := transport.RoundTrip(r)
	if err != nil {
		p.t.Fatal(err)
	}
	defer response.Body.Close()
	var text strings.Builder
	if err := response.Write(&text); err != nil {
		p.t.Fatal(err)
	}
	return response.StatusCode, response.Header.Get("Retry-After"), text.String()
}

// A proxy that starts while upstream is unreachable is live and not ready, answers with
// Retry-After, logs the reason, and serves once upstream answers.
func TestWaitsForUpstream(t *testing.T) {
	up := secureUpstream(t)
	up.Create(fakeapiserver.ConfigMaps, "n", "a")
	p := waiting(t, up, nil)
	if code, body := p.get(p.metrics + "/readyz"); code != http.StatusInternalServerError ||
		!strings.Contains(body, "[-]start failed: API server ") ||
		!strings.Contains(body, "connection refused") || strings.Contains(body, "mirrors") {
		t.Errorf("/readyz: %d %s", code, body)
	}
	if code, body := p.get(p.metrics + "/metrics"); code != http.StatusOK {
		t.Errorf("/metrics: %d %s", code, body)
	}
	for _, c := range []struct {
		method, path string
		code         int
		words        string
	}{
		{http.MethodGet, "/api/v1/configmaps", 503, "upstream API server is unavailable: connection refused"},
		{http.MethodGet, "/api/v1/configmaps?resourceVersion=0", 503, "unavailable"},
		{http.MethodGet, "/api/v1/configmaps?watch=1&resourceVersion=7", 429, "storage is (re)initializing"},
		{http.MethodGet, "/api/v1/watch/pods", 429, "storage is (re)initializing"},
		{http.MethodGet, "/apis", 503, "unavailable"},
		{http.MethodGet, "/readyz", 503, "unavailable"},
		{http.MethodPost, "/api/v1/namespaces/n/configmaps", 503, "unavailable"},
	} {
		for _, url := range []string{p.plain, p.tls} {
			code, after, body := p.asked(c.method, url+c.path)
			if code != c.code || after == "" || !strings.Contains(body, c.words) || !strings.Contains(body, `"kind":"Status"`) {
				t.Errorf("%s %s%s: %d, Retry-After %q, %s", c.method, url, c.path, code, after, body)
			}
		}
	}
	for _, line := range p.logs.FilterMessage("the API server is unreachable: nothing is served until it answers").All() {
		fields := line.ContextMap()
		if fields["upstream"] != up.URL || !strings.Contains(fields["error"].(string), "connection refused") ||
			fields["retryAfter"] == nil {
			t.Errorf("it says %v", fields)
		}
	}
	if n := p.logs.FilterMessageSnippet("serving").Len(); n != 0 {
		t.Error("it says that it serves")
	}
	if err := up.Up(); err != nil {
		t.Fatal(err)
	}
	p.ready()
	if code, body := p.get(p.tls + "/api/v1/configmaps?resourceVersion=0"); code != http.StatusOK ||
		!strings.Contains(body, `"name":"a"`) {
		t.Errorf("%d %s", code, body)
	}
	if n := p.logs.FilterMessage("the API server serves the proxy now").Len(); n != 1 {
		t.Errorf("said %d times that upstream serves", n)
	}
	p.stop()
	p.ends()
}

// A signal ends the process while it waits for upstream.
func TestEndsWhileWaiting(t *testing.T) {
	up := secureUpstream(t)
	p := waiting(t, up, nil)
	if err := syscall.Kill(os.Getpid(), syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	p.ends()
	if n := p.logs.FilterMessage("stopped").Len(); n != 1 {
		t.Error("not a word at the end")
	}
}

// An upstream that answers has the last word on the configuration, however late.
func TestRefusedAfterWaiting(t *testing.T) {
	up := secureUpstream(t)
	p := waiting(t, up, func(o *config.Settings) { o.Resources, o.StrictResources = []string{"nothings"}, true })
	if err := up.Up(); err != nil {
		t.Fatal(err)
	}
	err := <-p.done
	p.done <- nil
	if err == nil || !strings.Contains(err.Error(), `the API server serves no resource "nothings"`) {
		t.Errorf("ended with %v", err)
	}
	if n := p.logs.FilterMessage("stopped").Len(); n != 0 {
		t.Error("an unexpected end is reported as an expected one")
	}
}

// While the proxy waits, the log names the cause: an API server that answers is not unreachable.
func TestWaitMessageNamesTheCause(t *testing.T) {
	answered := func(code int) error {
		return fmt.Errorf("API server: %w", &apierrors.StatusError{ErrStatus: metav1.Status{Code: int32(code)}})
	}
	for _, tt := range []struct {
		name string
		err  error
		want string
	}{
		{"no connection", &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}, "the API server is unreachable"},
		{"no answer in time", context.DeadlineExceeded, "the API server is unreachable"},
		{"it is not ready", answered(http.StatusServiceUnavailable), "the API server answers that it cannot serve now"},
		{"it is overloaded", answered(http.StatusTooManyRequests), "the API server answers that it cannot serve now"},
		{"it does not know the user yet", answered(http.StatusUnauthorized), "the API server refuses"},
		{"it has no rules yet", answered(http.StatusForbidden), "the API server refuses"},
		{"a credential plugin is slow", &transport.CredentialError{Plugin: "login"}, "there are no credentials"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := waitMessage(tt.err); !strings.HasPrefix(got, tt.want) {
				t.Errorf("%q, want %q", got, tt.want)
			}
		})
	}
}
