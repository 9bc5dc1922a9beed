package readyourwrites

import (
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
)

// balancer hands connections to apiservers in turn, as the load balancers before control planes do: it neither knows nor asks which
// of them answers.
type balancer struct {
	url     string
	targets []string

	mu    sync.Mutex
	next  int
	conns map[net.Conn]struct{}
}

// newBalancer stands before the servers at these URLs. It ends with the test.
func newBalancer(t *testing.T, urls ...string) *balancer {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b := &balancer{url: "https://" + listener.Addr().String(), conns: map[net.Conn]struct{}{}}
	for _, url := range urls {
		b.targets = append(b.targets, strings.TrimPrefix(url, "https://"))
	}
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			conn, err := listener.Accept()
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err == nil {
				serving.Go(func() { b.serve(conn) })
			}
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		b.mu.Lock()
		for conn := range b.conns {
			_ = conn.Close()
		}
		b.mu.Unlock()
		serving.Wait()
	})
	return b
}

// serve carries one connection.
func (b *balancer) serve(client net.Conn) {
	b.mu.Lock()
	target := b.targets[b.next%len(b.targets)]
	b.next++
	b.mu.Unlock()
	server, err := net.Dial("tcp", target)
	if err != nil {
		_ = client.Close()
		return
	}
	b.mu.Lock()
	b.conns[client], b.conns[server] = struct{}{}, struct{}{}
	b.mu.Unlock()
	var both sync.WaitGroup
	both.Go(func() { b.copy(server, client) })
	both.Go(func() { b.copy(client, server) })
	both.Wait()
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.conns, client)
	delete(b.conns, server)
}

// copy carries one direction, and ends the other when it is over.
func (b *balancer) copy(to, from net.Conn) {
	_, _ = io.Copy(to, from)
	_ = to.Close()
	_ = from.Close()
}
