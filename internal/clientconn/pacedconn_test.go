package clientconn

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http/httptest"
	"os"
	"testing"
	"testing/synctest"
	"time"
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
		time.Sleep(time.Hour) // goroutines that still sleep find it closed
	})
	return near, far
}

// TestPaceTellsStalledClientsFromSlowOnes shows which clients are stalled and which are not (D10).
// In the bubble a second costs nothing.
func TestPaceTellsStalledClientsFromSlowOnes(t *testing.T) {
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
		{"too long without a byte", false, 20, 1, 13 * time.Second, ErrStalled, stall * 3 / 2, stall},
		{"nothing at all", false, 20, 0, 0, ErrStalled, stall + time.Second, stall},
		{"nothing at all, pins", true, 20, 0, 0, ErrStalled, stall + time.Second, stall},
		{"a thin line, pins", true, 4 << 20, 40_000, time.Second, nil, time.Hour, time.Minute},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				near, far := pipe(t)
				if c.n > 0 {
					go drip(far, c.n, c.pause)
				}
				paced := &PacedConn{Conn: near}
				if err := paced.SetPace(stall, pinnedIf(c.pins)); err != nil {
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

// A pause between two writes is the proxy's, not the client's; and without a pace a write waits as
// long as it takes.
func TestPaceOfWritesOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := pipe(t)
		paced := &PacedConn{Conn: near}
		if err := paced.SetPace(time.Second, 0); err != nil {
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
		paced := &PacedConn{Conn: near}
		for _, stall := range []time.Duration{time.Second, 0} {
			if err := paced.SetPace(stall, 1); err != nil {
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

// slow takes a little at a time: a TLS record of 16 KiB lasts longer than a pace waits for one
// byte.
type slow struct{ net.Conn }

func (s slow) Read(b []byte) (int, error) {
	time.Sleep(800 * time.Millisecond)
	return s.Conn.Read(b[:min(len(b), 1000)])
}

// TLS above a paced connection says what the connection said: a stall is a stall, and a slow client
// that goes on gets every byte, although writes timed out half-way below.
func TestTLSReportsTheStallOfItsConnection(t *testing.T) {
	s := httptest.NewTLSServer(nil)
	config := &tls.Config{Certificates: s.TLS.Certificates}
	s.Close()
	synctest.Test(t, func(t *testing.T) {
		near, far := pipe(t)
		paced := &PacedConn{Conn: near}
		server := tls.Server(paced, config)
		if PacedConnOf(server) != paced {
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
		if err := paced.SetPace(10*time.Second, 0); err != nil {
			t.Fatal(err)
		}
		if _, err := server.Write(text); err != nil {
			t.Fatal(err)
		}
		if all := <-got; !bytes.Equal(all, text) {
			t.Errorf("%d bytes arrived of %d", len(all), len(text))
		}
		if _, err := server.Write(text); !errors.Is(err, ErrStalled) {
			t.Errorf("the peer does not read: %v", err)
		}
	})
}

// A connection that fails is not a stall.
func TestPaceOfABrokenConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := pipe(t)
		paced := &PacedConn{Conn: near}
		if err := paced.SetPace(time.Second, 0); err != nil {
			t.Fatal(err)
		}
		go func() {
			time.Sleep(time.Millisecond)
			far.Close()
		}()
		if _, err := paced.Write([]byte("x")); err == nil || errors.Is(err, ErrStalled) ||
			errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("got %v", err)
		}
	})
}
