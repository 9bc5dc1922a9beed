package upstream_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"spillway/internal/fakeapiserver"
	"spillway/internal/testutil"
	"spillway/internal/upstream"
	"spillway/internal/upstream/discovery"
	"spillway/internal/upstream/upstreamtest"
)

// listening is an address where something is done to each connection.
func listening(t *testing.T, serve func(net.Conn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go serve(c)
		}
	}()
	return l.Addr().String()
}

// Errors that waiting mends are distinguished from others, whichever request of a start meets them.
func TestErrorsThatWaitingMendsAreUnavailable(t *testing.T) {
	f := func(name string, c *upstream.Client, want bool) {
		t.Helper()
		_, resolved := discovery.Resolve(testutil.Deadline(t), c, []string{"configmaps"})
		_, named := c.ServiceAccount(testutil.Deadline(t))
		checked := c.Check(testutil.Deadline(t))
		for what, err := range map[string]error{"Check": checked, "Resolve": resolved, "ServiceAccount": named} {
			if err == nil || upstream.IsUnavailable(err) != want {
				t.Errorf("%s: %s: unavailable is %v for %v", name, what, upstream.IsUnavailable(err), err)
			}
		}
	}
	reset := listening(t, func(c net.Conn) {
		_ = c.(*net.TCPConn).SetLinger(0)
		_ = c.Close()
	})
	closed := listening(t, func(c net.Conn) {
		_, _ = c.Read(make([]byte, 1<<10))
		_ = c.Close()
	})
	brief := listening(t, func(c net.Conn) { _ = c.Close() })
	plain := listening(t, func(c net.Conn) {
		_, _ = c.Read(make([]byte, 1))
		_, _ = c.Write([]byte("HTTP/1.1 400 Bad Request\r\n\r\n"))
		_ = c.Close()
	})
	for _, c := range []struct {
		name, url string
		want      bool
	}{
		{"reset", "http://" + reset, true},
		{"reset in the handshake", "https://" + reset, true},
		{"closed", "http://" + closed, true},
		{"closed in the handshake", "https://" + closed, true},
		{"closed at once", "http://" + brief, true},
		{"not TLS", "https://" + plain, false},
		{"no port", "https://127.0.0.1:99999", false},
	} {
		f(c.name, upstreamtest.NewClient(t, &rest.Config{Host: c.url}), c.want)
	}
	for code, want := range map[int]bool{401: false, 403: false, 404: false, 418: false, 429: true, 500: true, 502: true,
		503: true, 504: true} {
		s, c := upstreamtest.NewServer(t, fakeapiserver.Options{TLS: true})
		s.Handle("/", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }))
		f(http.StatusText(code), c, want)
	}
	s, c := upstreamtest.NewServer(t, fakeapiserver.Options{TLS: true})
	f("a certificate of an unknown authority", upstreamtest.NewClient(t, &rest.Config{Host: s.URL}), false)
	s.Down()
	f("refused", c, true)
	if err := s.Up(); err != nil {
		t.Fatal(err)
	}
	s.Hang()
	hurried, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if err := c.Check(hurried); !upstream.IsUnavailable(err) {
		t.Errorf("a timeout is %v", err)
	}
	if !upstream.IsUnavailable(&net.OpError{Op: "dial", Err: &net.DNSError{IsNotFound: true}}) {
		t.Error("a name that does not resolve is not unavailable")
	}
	if upstream.IsUnavailable(nil) || upstream.IsUnavailable(errors.New("anything")) {
		t.Error("an unknown error counts as unavailable")
	}
}
