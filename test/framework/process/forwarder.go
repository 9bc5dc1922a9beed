package process

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"sync"
	"testing"

	"spillway/test/framework/controlplane"
)

// Forwarder is an address that outlives the servers behind it, as that of a Service or of a load
// balancer does. It hands connections to them in turn, and does not know which of them answers.
// While it is down, connections are refused.
type Forwarder struct {
	// Static after the first Up.
	Address string // host:port

	t       *testing.T
	dial    Dial
	serving sync.WaitGroup

	mu       sync.Mutex
	listener net.Listener // nil while it is down
	targets  []string     // host:port
	next     int
	conns    map[net.Conn]struct{}
	frozen   chan struct{} // closed when it is not frozen any more; nil: it is not
}

// Dial connects to an address, as that of net.Dialer does.
type Dial func(ctx context.Context, network, address string) (net.Conn, error)

// NewForwarder forwards to the servers at these URLs, at a port that is still free when it comes up
// again. It ends with the test.
func NewForwarder(t *testing.T, urls ...string) *Forwarder {
	t.Helper()
	return NewForwarderInto(t, new(net.Dialer).DialContext, urls...)
}

// NewForwarderInto is NewForwarder to servers that dial connects to, such as those in a network
// that this process is not in.
func NewForwarderInto(t *testing.T, dial Dial, urls ...string) *Forwarder {
	t.Helper()
	port, err := controlplane.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	return newForwarder(t, dial, fmt.Sprintf("127.0.0.1:%d", port), urls...)
}

// NewForwarderAt is NewForwarder at an address of this machine, host:port.
func NewForwarderAt(t *testing.T, address string, urls ...string) *Forwarder {
	t.Helper()
	return newForwarder(t, new(net.Dialer).DialContext, address, urls...)
}

func newForwarder(t *testing.T, dial Dial, address string, urls ...string) *Forwarder {
	t.Helper()
	f := &Forwarder{t: t, dial: dial, Address: address, conns: map[net.Conn]struct{}{}}
	f.Up(urls...)
	t.Cleanup(func() {
		f.Down()
		f.serving.Wait()
	})
	return f
}

// Up forwards to the servers at these URLs from now on, after Down.
func (f *Forwarder) Up(urls ...string) {
	f.t.Helper()
	f.Direct(urls...)
	listener, err := net.Listen("tcp", f.Address)
	if err != nil {
		f.t.Fatal(err)
	}
	f.mu.Lock()
	f.listener, f.Address = listener, listener.Addr().String()
	f.mu.Unlock()
	f.serving.Go(func() {
		for {
			conn, err := listener.Accept()
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err == nil {
				f.serving.Go(func() { f.serve(listener, conn) })
			}
		}
	})
}

// Direct hands connections to the servers at these URLs from now on. Those that are open stay as
// they are.
func (f *Forwarder) Direct(urls ...string) {
	f.t.Helper()
	var targets []string
	for _, u := range urls {
		parsed, err := url.Parse(u)
		if err != nil {
			f.t.Fatal(err)
		}
		targets = append(targets, parsed.Host)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.targets = targets
}

// Freeze leaves all connections open, accepts others, and carries nothing any more, as what is
// half-open does. It ends with Down.
func (f *Forwarder) Freeze() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.frozen == nil {
		f.frozen = make(chan struct{})
	}
}

// thawed waits while it is frozen.
func (f *Forwarder) thawed() {
	f.mu.Lock()
	frozen := f.frozen
	f.mu.Unlock()
	if frozen != nil {
		<-frozen
	}
}

// Down closes everything. Idempotent.
func (f *Forwarder) Down() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.frozen != nil {
		close(f.frozen)
		f.frozen = nil
	}
	if f.listener == nil {
		return
	}
	_ = f.listener.Close()
	f.listener = nil
	for conn := range f.conns {
		_ = conn.Close()
	}
}

// serve carries a connection that a listener has accepted.
func (f *Forwarder) serve(from net.Listener, client net.Conn) {
	defer client.Close()
	f.mu.Lock()
	target := f.targets[f.next%len(f.targets)]
	f.next++
	f.mu.Unlock()
	server, err := f.dial(context.Background(), "tcp", target) // not the test's: it serves until Down
	if err != nil {
		return
	}
	defer server.Close()
	f.mu.Lock()
	open := f.listener == from // else it went down meanwhile
	if open {
		f.conns[client], f.conns[server] = struct{}{}, struct{}{}
	}
	f.mu.Unlock()
	if !open {
		return
	}
	var both sync.WaitGroup
	for _, way := range [][2]net.Conn{{client, server}, {server, client}} {
		both.Go(func() {
			f.carry(way[1], way[0])
			_, _ = way[0].Close(), way[1].Close()
		})
	}
	both.Wait()
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.conns, client)
	delete(f.conns, server)
}

// carry is io.Copy, unless it is frozen.
func (f *Forwarder) carry(to io.Writer, from io.Reader) {
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		f.thawed()
		if n > 0 {
			if _, err := to.Write(buffer[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}
