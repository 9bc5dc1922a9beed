package transport

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

// resolving is a resolver for which every name has the addresses 127.0.0.1 and 127.0.0.2, in this
// order.
func resolving(t *testing.T) *net.Resolver {
	t.Helper()
	server, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Close() })
	go func() {
		for buffer := make([]byte, 1<<10); ; {
			n, from, err := server.ReadFrom(buffer)
			if err != nil {
				return
			}
			if answer, err := answerTo(buffer[:n]); err == nil {
				_, _ = server.WriteTo(answer, from)
			}
		}
	}()
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "udp", server.LocalAddr().String())
	}}
}

func answerTo(question []byte) ([]byte, error) {
	var m dnsmessage.Message
	if err := m.Unpack(question); err != nil {
		return nil, err
	}
	m.Response, m.Additionals = true, nil
	if q := m.Questions[0]; q.Type == dnsmessage.TypeA {
		for _, last := range []byte{1, 2} {
			m.Answers = append(m.Answers, dnsmessage.Resource{
				Header: dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: q.Class, TTL: 1},
				Body:   &dnsmessage.AResource{A: [4]byte{127, 0, 0, last}},
			})
		}
	}
	return m.Pack()
}

// both listens at one port of both addresses.
func both(t *testing.T) (first, second net.Listener, port string) {
	t.Helper()
	var err error
	for range 20 {
		if first, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
			t.Fatal(err)
		}
		port = fmt.Sprint(first.Addr().(*net.TCPAddr).Port)
		if second, err = net.Listen("tcp", "127.0.0.2:"+port); err == nil {
			t.Cleanup(func() { _, _ = first.Close(), second.Close() })
			return first, second, port
		}
		first.Close()
	}
	t.Fatal(err)
	return nil, nil, ""
}

// An address that accepts and never answers is skipped for another one, until it answers or no
// other accepts.
func TestDialerLeavesTheMute(t *testing.T) {
	_, second, port := both(t)
	d := newDialer(newAddressTable(func() {}))
	d.Resolver = resolving(t)
	dial := func(want string) *trackedConn {
		t.Helper()
		c, err := d.DialContext(deadline(t), "tcp", "upstream.test:"+port)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		if got := c.RemoteAddr().String(); got != want+":"+port {
			t.Fatalf("connected to %s, want %s", got, want)
		}
		return c.(*trackedConn)
	}
	ask := func(c *trackedConn, since time.Duration) {
		t.Helper()
		if _, err := c.Write([]byte("?")); err != nil {
			t.Fatal(err)
		}
		c.waitingSince.Store(time.Now().Add(-since).UnixNano())
	}
	dial("127.0.0.1").Close()
	hurried := dial("127.0.0.1")
	ask(hurried, -time.Hour) // however slow this machine is, it does not wait for long
	hurried.Close()
	answered := dial("127.0.0.1")
	ask(answered, time.Hour)
	answered.waitingSince.Store(0)
	answered.Close()
	slow := dial("127.0.0.1")
	ask(slow, unresponsiveAfter)
	slow.address.lastRead.Store(time.Now().UnixNano()) // another connection got an answer meanwhile
	slow.Close()
	dial("127.0.0.1").Close()
	vain := dial("127.0.0.1")
	ask(vain, unresponsiveAfter)
	vain.Close()
	dial("127.0.0.2").Close()
	second.Close()
	dial("127.0.0.1").Close() // rather than none
	if !d.addresses.isUnresponsive("127.0.0.1:" + port) {
		t.Error("an unresponsive address is forgotten")
	}
	d.addresses.byText["127.0.0.1:"+port].avoidUntil = time.Now().Add(-time.Second)
	if d.addresses.isUnresponsive("127.0.0.1:" + port) {
		t.Error("an unresponsive address is never forgotten")
	}
}

// An address that answers is no longer unresponsive; while one is, no request is sent on a
// connection that has been idle.
func TestMuteAddress(t *testing.T) {
	var mu sync.Mutex
	states := map[http.ConnState]int{}
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		mu.Lock()
		defer mu.Unlock()
		states[state]++
	}
	s.Start()
	defer s.Close()
	var set transportSet
	d := newDialer(newAddressTable(set.closeIdle))
	transport := &http.Transport{DialContext: d.DialContext}
	set.add(transport)
	text := s.Listener.Addr().String()
	address := d.addresses.acquire(text)
	d.addresses.markUnresponsive(address)
	get := func() {
		t.Helper()
		resp, err := (&http.Client{Transport: transport}).Get(s.URL)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
	}
	get()
	if d.addresses.isUnresponsive(text) {
		t.Error("an address that answers is unresponsive")
	}
	d.addresses.markUnresponsive(address)
	for ctx, closed := deadline(t), false; !closed; time.Sleep(time.Millisecond) {
		if ctx.Err() != nil {
			t.Fatal("the idle connection stays open")
		}
		mu.Lock()
		closed = states[http.StateClosed] > 0
		mu.Unlock()
	}
}
