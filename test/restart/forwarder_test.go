package restart

import (
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
)

// forwarder is an address that outlives the servers behind it, as a Service does. While it is down, connections are refused.
type forwarder struct {
	t       *testing.T
	address string
	serving sync.WaitGroup

	mu       sync.Mutex
	listener net.Listener
	target   string
	conns    map[net.Conn]struct{}
}

func newForwarder(t *testing.T, target string) *forwarder {
	t.Helper()
	f := &forwarder{t: t, address: "127.0.0.1:0", conns: map[net.Conn]struct{}{}}
	f.up(target)
	t.Cleanup(func() {
		f.down()
		f.serving.Wait()
	})
	return f
}

func (f *forwarder) url() string { return "http://" + f.address }

// up forwards to a server from now on.
func (f *forwarder) up(target string) {
	f.t.Helper()
	listener, err := net.Listen("tcp", f.address)
	if err != nil {
		f.t.Fatal(err)
	}
	f.mu.Lock()
	f.listener, f.address, f.target = listener, listener.Addr().String(), strings.TrimPrefix(target, "http://")
	f.mu.Unlock()
	f.serving.Go(func() {
		for {
			conn, err := listener.Accept()
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err == nil {
				f.serving.Go(func() { f.serve(conn) })
			}
		}
	})
}

// down closes everything.
func (f *forwarder) down() {
	f.mu.Lock()
	defer f.mu.Unlock()
	_ = f.listener.Close()
	for conn := range f.conns {
		_ = conn.Close()
	}
}

func (f *forwarder) serve(client net.Conn) {
	server, err := net.Dial("tcp", f.target)
	if err != nil {
		_ = client.Close()
		return
	}
	f.mu.Lock()
	f.conns[client], f.conns[server] = struct{}{}, struct{}{}
	f.mu.Unlock()
	var both sync.WaitGroup
	for _, way := range [][2]net.Conn{{client, server}, {server, client}} {
		both.Go(func() {
			_, _ = io.Copy(way[1], way[0])
			_ = way[1].Close()
		})
	}
	both.Wait()
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.conns, client)
	delete(f.conns, server)
}
