package serve

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"spillway/internal/fakeapiserver"
	"spillway/internal/object"
	"spillway/internal/watch"
)

// A client that asks for something large and does not read it is let go, whatever it asked for.
func TestStalledAnswers(t *testing.T) { eachWay(t, testStalledAnswers) }

func testStalledAnswers(t *testing.T, goroutines bool) {
	t.Parallel()
	up := fakeapiserver.New(fakeapiserver.Options{})
	for i := range 8 {
		up.Create(fakeapiserver.ConfigMaps, "n", fmt.Sprint(i), fakeapiserver.WithPadding(900_000))
	}
	// The last piece is small: fasthttp keeps that in its own buffer until the very end.
	up.Create(fakeapiserver.ConfigMaps, "z", "small", fakeapiserver.WithPadding(10))
	r := rigOf(t, up, rigOptions{goroutines: goroutines, stall: time.Second, mirrors: []*object.Resource{configMaps}})
	for _, target := range []string{
		"/api/v1/configmaps?resourceVersion=0", "/api/v1/namespaces/n/configmaps/1?resourceVersion=0",
		"/api/v1/configmaps?watch=1&resourceVersion=0",
	} {
		for _, secure := range []bool{false, true} {
			c := r.dialTiny(secure)
			fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: x\r\n\r\n", target)
			if _, err := io.ReadFull(c, make([]byte, 100)); err != nil {
				t.Fatal(err)
			}
			eventually(t, fmt.Sprintf("%s to be given up (TLS %v)", target, secure), func() bool {
				return r.metric("spillway_client_connections") == 0 &&
					r.metric("spillway_watches", "resource=configmaps") == 0
			})
			// By an abort: after a clean end the kernel would go on offering the bytes that it holds to a
			// client that does not read them.
			if _, err := io.Copy(io.Discard, c); !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("%s was given up (TLS %v), and the client learns: %v", target, secure, err)
			}
			_ = c.Close()
		}
	}
	r.ended(configMaps, watch.EndSlowClientStalled, 2)
}

// dialTiny connects with a small receive buffer, so that a client that stalls is soon felt.
func (r *rig) dialTiny(secure bool) net.Conn {
	r.t.Helper()
	url := r.url
	if secure {
		url = r.tlsURL
	}
	_, address, _ := strings.Cut(url, "://")
	c, err := net.Dial("tcp", address)
	if err != nil {
		r.t.Fatal(err)
	}
	if err := c.(*net.TCPConn).SetReadBuffer(4096); err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = c.Close() })
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		r.t.Fatal(err)
	}
	if secure {
		return tls.Client(c, &tls.Config{InsecureSkipVerify: true}) //nolint:gosec // a throw-away certificate
	}
	return c
}
