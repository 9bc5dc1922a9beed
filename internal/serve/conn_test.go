package serve

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http/httptest"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"spillway/internal/kubetest"
	"spillway/internal/object"
)

// drip takes n bytes at once and then sleeps, until the connection ends.
func drip(c net.Conn, n int, pause time.Duration) {
	buf := make([]byte, n)
	for {
		if _, err := io.ReadFull(c, buf); err != nil {
			return
		}
		time.Sleep(pause)
	}
}

// pipe is a connection in a bubble.
func pipe(t *testing.T) (near, far net.Conn) {
	near, far = net.Pipe()
	t.Cleanup(func() {
		_ = near.Close()
		_ = far.Close()
		time.Sleep(time.Hour) // whoever still sleeps finds it closed
	})
	return near, far
}

// TestPace is who may go on and who is stalled (D10). In the bubble a second costs nothing.
func TestPace(t *testing.T) {
	const stall = 10 * time.Second
	for _, c := range []struct {
		name        string
		pins        bool
		bytes       int
		n           int // bytes that the client takes at once
		pause       time.Duration
		want        error
		within, not time.Duration // ends before within, and not before not
	}{
		{"reads at once", false, 1 << 20, 4096, 0, nil, time.Second, 0},
		{"reads at once, pins", true, 1 << 20, 4096, 0, nil, time.Second, 0},
		{"a byte now and then is progress", false, 20, 1, 9 * time.Second, nil, time.Hour, 150 * time.Second},
		{"a byte now and then is progress, pins", true, 20, 1, 9 * time.Second, nil, time.Hour, 150 * time.Second},
		{"too long without a byte", false, 20, 1, 13 * time.Second, errStalled, stall * 3 / 2, stall},
		{"nothing at all", false, 20, 0, 0, errStalled, stall + time.Second, stall},
		{"nothing at all, pins", true, 20, 0, 0, errStalled, stall + time.Second, stall},
		{"a thin line, pins", true, 4 << 20, 40_000, time.Second, nil, time.Hour, time.Minute},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				near, far := pipe(t)
				if c.n > 0 {
					go drip(far, c.n, c.pause)
				}
				paced := &conn{Conn: near}
				if err := paced.setPace(stall, pinnedIf(c.pins)); err != nil {
					t.Fatal(err)
				}
				began := time.Now()
				n, err := paced.Write(make([]byte, c.bytes))
				took := time.Since(began)
				if !errors.Is(err, c.want) || c.want == nil && (err != nil || n != c.bytes) {
					t.Errorf("%d bytes, %v; want %v", n, err, c.want)
				}
				if took >= c.within || took < c.not {
					t.Errorf("took %v, want [%v, %v)", took, c.not, c.within)
				}
			})
		})
	}
}

func pinnedIf(pins bool) int64 {
	if pins {
		return 1
	}
	return 0
}

// A pause between two writes is the proxy's, not the client's; and without a pace a write waits as long as it takes.
func TestPaceOfWritesOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := pipe(t)
		paced := &conn{Conn: near}
		if err := paced.setPace(time.Second, 0); err != nil {
			t.Fatal(err)
		}
		go drip(far, 1, 0)
		for range 3 {
			time.Sleep(time.Hour)
			if _, err := paced.Write([]byte("x")); err != nil {
				t.Fatal(err)
			}
		}
	})
	synctest.Test(t, func(t *testing.T) {
		near, far := pipe(t)
		paced := &conn{Conn: near}
		for _, stall := range []time.Duration{time.Second, 0} {
			if err := paced.setPace(stall, 1); err != nil {
				t.Fatal(err)
			}
		}
		go func() {
			time.Sleep(time.Hour)
			drip(far, 1, 0)
		}()
		if _, err := paced.Write([]byte("xyz")); err != nil {
			t.Fatal(err)
		}
	})
}

// slow takes a little at a time: a TLS record of 16 KiB lasts longer than a pace waits for one byte.
type slow struct{ net.Conn }

func (s slow) Read(b []byte) (int, error) {
	time.Sleep(800 * time.Millisecond)
	return s.Conn.Read(b[:min(len(b), 1000)])
}

// TLS above a paced connection says what the connection said: a stall is a stall, and a slow client that goes on gets
// every byte, although writes timed out half-way below.
func TestPaceBelowTLS(t *testing.T) {
	s := httptest.NewTLSServer(nil)
	config := &tls.Config{Certificates: s.TLS.Certificates}
	s.Close()
	synctest.Test(t, func(t *testing.T) {
		near, far := pipe(t)
		paced := &conn{Conn: near}
		server := tls.Server(paced, config)
		if pacer(server) != paced {
			t.Fatal("the pace is not found below TLS")
		}
		client := tls.Client(slow{far}, &tls.Config{InsecureSkipVerify: true}) //nolint:gosec // a throw-away certificate
		text := bytes.Repeat([]byte("0123456789"), 10_000)
		got := make(chan []byte, 1)
		go func() {
			all := make([]byte, len(text))
			n, _ := io.ReadFull(client, all)
			all = all[:n]
			got <- all
		}()
		if err := server.Handshake(); err != nil {
			t.Fatal(err)
		}
		if err := paced.setPace(10*time.Second, 0); err != nil {
			t.Fatal(err)
		}
		if _, err := server.Write(text); err != nil {
			t.Fatal(err)
		}
		if all := <-got; !bytes.Equal(all, text) {
			t.Errorf("%d bytes arrived of %d", len(all), len(text))
		}
		if _, err := server.Write(text); !errors.Is(err, errStalled) {
			t.Errorf("nobody reads: %v", err)
		}
	})
}

// A connection that fails is not a stall.
func TestPaceOfABrokenConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := pipe(t)
		paced := &conn{Conn: near}
		if err := paced.setPace(time.Second, 0); err != nil {
			t.Fatal(err)
		}
		go func() {
			time.Sleep(time.Millisecond)
			far.Close()
		}()
		if _, err := paced.Write([]byte("x")); err == nil || errors.Is(err, errStalled) || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("got %v", err)
		}
	})
}

// openConnections is how many connections fasthttp serves.
func (r *rig) openConnections() int32 {
	r.server.mu.Lock()
	defer r.server.mu.Unlock()
	var n int32
	for _, f := range r.server.mu.fronts {
		n += f.GetOpenConnectionsCount()
	}
	return n
}

// A client that asks for something large and does not read it is let go, whatever it asked for.
func TestStalledAnswers(t *testing.T) { eachWay(t, testStalledAnswers) }

func testStalledAnswers(t *testing.T, goroutines bool) {
	t.Parallel()
	up := kubetest.New(kubetest.Options{})
	for i := range 8 {
		up.Create(kubetest.ConfigMaps, "n", fmt.Sprint(i), kubetest.WithPadding(900_000))
	}
	// The last piece is small: fasthttp keeps that in its own buffer until the very end.
	up.Create(kubetest.ConfigMaps, "z", "small", kubetest.WithPadding(10))
	r := rigOf(t, up, rigOptions{goroutines: goroutines, stall: time.Second, mirrors: []*object.Resource{configMaps}})
	for _, target := range []string{
		"/api/v1/configmaps?resourceVersion=0", "/api/v1/namespaces/n/configmaps/1?resourceVersion=0", "/api/v1/configmaps?watch=1&resourceVersion=0",
	} {
		for _, secure := range []bool{false, true} {
			c := r.dialTiny(secure)
			fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: x\r\n\r\n", target)
			if _, err := io.ReadFull(c, make([]byte, 100)); err != nil {
				t.Fatal(err)
			}
			eventually(t, fmt.Sprintf("%s to be given up (TLS %v)", target, secure), func() bool {
				return r.openConnections() == 0 && r.metric("spillway_watch_streams", "resource=configmaps") == 0
			})
			// By an abort: after a clean end the kernel would go on offering what it holds, to somebody who does not take it.
			if _, err := io.Copy(io.Discard, c); !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("%s was given up (TLS %v), and the client learns: %v", target, secure, err)
			}
			_ = c.Close()
		}
	}
	r.ended(configMaps, EndStalled, 2)
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
