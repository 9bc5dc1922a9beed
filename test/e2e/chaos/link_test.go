package chaos

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// ends are both ends of a connection over a link.
func ends(t *testing.T) (l *Link, client, server net.Conn) {
	t.Helper()
	target, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer target.Close()
	if l, err = NewLink(target.Addr().String()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	if client, err = net.Dial("tcp4", l.Address()); err != nil {
		t.Fatal(err)
	}
	if server, err = target.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		client.Close()
		server.Close()
	})
	carries(t, client, server, []byte("x")) // or the link might not know of them yet, and they of no weather
	return l, client, server
}

// carries sends bytes one way, and waits until all of them are there.
func carries(t *testing.T, from, to net.Conn, bytesSent []byte) {
	t.Helper()
	go func() { _, _ = from.Write(bytesSent) }()
	got := make([]byte, len(bytesSent))
	if _, err := io.ReadFull(to, got); err != nil || !bytes.Equal(got, bytesSent) {
		t.Fatalf("%d bytes do not arrive as they are: %v", len(bytesSent), err)
	}
}

// nothingArrives is true of a connection that is held or silent at every moment; this looks at one.
func nothingArrives(t *testing.T, at net.Conn) {
	t.Helper()
	_ = at.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
	if n, err := at.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("%d bytes arrive, or an end: %v", n, err)
	}
	_ = at.SetReadDeadline(time.Time{})
}

func TestLinkCarries(t *testing.T) {
	_, client, server := ends(t)
	much := bytes.Repeat([]byte("spillway"), 100_000)
	carries(t, client, server, much)
	carries(t, server, client, much)
	_ = client.(*net.TCPConn).CloseWrite()
	if _, err := server.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("a half that has ended is reported as %v", err)
	}
	carries(t, server, client, []byte("still there"))
}

func TestLinkWeather(t *testing.T) {
	l, client, server := ends(t)
	l.Set(LinkConditions{Held: true})
	_, _ = client.Write([]byte("x"))
	nothingArrives(t, server)
	l.Set(LinkConditions{})
	if _, err := io.ReadFull(server, make([]byte, 1)); err != nil {
		t.Fatalf("what was held does not arrive: %v", err)
	}
	for name, w := range map[string]LinkConditions{
		"far":    {Latency: 30 * time.Millisecond},
		"narrow": {Bandwidth: 100_000},
	} {
		l.Set(w)
		began := time.Now()
		carries(t, server, client, bytes.Repeat([]byte("x"), 2000))
		if took := time.Since(began); took < 20*time.Millisecond {
			t.Errorf("%s: it takes %v", name, took)
		}
	}
}

// What is lost is sent again by the ends themselves, either way, on old connections and on new
// ones; all of it arrives.
func TestLinkLoses(t *testing.T) {
	if noLoss() != nil {
		t.Skip(noLoss())
	}
	l, client, server := ends(t)
	much := bytes.Repeat([]byte("spillway"), 10_000)
	for l.Set(LinkConditions{Loss: 0.1}); resent(t, client) == 0 || resent(t, server) == 0; {
		carries(t, client, server, much)
		carries(t, server, client, much)
	}
	l.Set(LinkConditions{})
	carries(t, client, server, bytes.Repeat(much, 100))
}

// resent is how many packets an end has sent again.
func resent(t *testing.T, end net.Conn) (n uint32) {
	t.Helper()
	raw, err := end.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	control := raw.Control(func(fd uintptr) {
		var info *unix.TCPInfo
		if info, err = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO); err == nil {
			n = info.Total_retrans
		}
	})
	if err := errors.Join(err, control); err != nil {
		t.Fatal(err)
	}
	return n
}

// Where nothing can be lost, it comes late.
func TestLinkMakesLossUp(t *testing.T) {
	real := noLoss
	noLoss = func() error { return errors.New("nothing can be lost") }
	t.Cleanup(func() { noLoss = real }) // once the link is closed
	l, client, server := ends(t)
	l.Set(LinkConditions{Loss: 1})
	began := time.Now()
	carries(t, server, client, []byte("x"))
	if took := time.Since(began); took < resend {
		t.Errorf("it takes %v", took)
	}
}

func TestLinkReset(t *testing.T) {
	l, client, server := ends(t)
	carries(t, client, server, []byte("x"))
	l.Reset()
	for _, end := range []net.Conn{client, server} {
		if _, err := end.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("a reset is reported as %v", err)
		}
	}
}

func TestLinkSilence(t *testing.T) {
	l, client, server := ends(t)
	l.Set(LinkConditions{Silent: true})
	l.Set(LinkConditions{})
	_, _ = client.Write([]byte("x"))
	nothingArrives(t, server)
	_ = client.Close()
	nothingArrives(t, server) // not its end either
}

func TestLinkLeads(t *testing.T) {
	l, _, _ := ends(t)
	other, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	l.Lead(other.Addr().String())
	client, err := net.Dial("tcp4", l.Address())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	server, err := other.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	carries(t, client, server, []byte("x"))
}
