package mirror

import (
	"io"
	"net"
	"strings"
	"sync"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"spillway/internal/fakeapiserver"
	"spillway/internal/mirror/states"
)

// address is one behind which are several servers.
type address struct {
	listener net.Listener
	serving  sync.WaitGroup

	mu    sync.Mutex
	next  []string // servers of the next connections, as host:port; then rest
	rest  string
	conns []net.Conn
}

func newAddress(t *testing.T, rest string) *address {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	a := &address{listener: l, rest: rest}
	a.serving.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", a.choose())
			if err != nil {
				_ = client.Close()
				continue
			}
			a.mu.Lock()
			a.conns = append(a.conns, client, server)
			a.mu.Unlock()
			for _, way := range [][2]net.Conn{{client, server}, {server, client}} {
				a.serving.Go(func() {
					_, _ = io.Copy(way[1], way[0])
					_, _ = way[0].Close(), way[1].Close()
				})
			}
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		a.cut()
		a.serving.Wait()
	})
	return a
}

func (a *address) choose() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.next) == 0 {
		return a.rest
	}
	chosen := a.next[0]
	a.next = a.next[1:]
	return chosen
}

// cut closes all connections. The next ones go to servers, and those after them to the rest.
func (a *address) cut(servers ...string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.next = servers
	for _, conn := range a.conns {
		_ = conn.Close()
	}
	a.conns = nil
}

// Two clusters behind one address: a new watch is from the other one, which is behind and says
// nothing of it, while every other connection leads to the one before. The question goes over the
// watch's own connection, and the line names the possibility.
func TestAnotherClusterBehindTheAddressIsNoticedOnTheWatchsConnection(t *testing.T) {
	first, second := fakeapiserver.New(fakeapiserver.Options{HTTP2: true}),
		fakeapiserver.New(fakeapiserver.Options{HTTP2: true})
	t.Cleanup(first.Close)
	t.Cleanup(second.Close)
	host := func(s *fakeapiserver.Server) string { return strings.TrimPrefix(s.URL, "https://") }
	for range 10 {
		first.Create(fakeapiserver.ConfigMaps, "n", "a")
		first.Delete(fakeapiserver.ConfigMaps, "n", "a")
	}
	first.Create(fakeapiserver.ConfigMaps, "n", "of the first")
	second.Create(fakeapiserver.ConfigMaps, "n", "of the second")
	at := newAddress(t, host(first))
	core, logs := observer.New(zap.InfoLevel)
	m := mirroringAt(t, first, "https://"+at.listener.Addr().String(), zap.New(core), "configmaps")
	one := m.awaitComparable(t)
	asked := m.checkBegun(begunCounts{})
	if first.Lists(fakeapiserver.ConfigMaps) != 1 {
		t.Errorf("asked %d times after the first watch", first.Lists(fakeapiserver.ConfigMaps))
	}
	watches := one.reflector.Status().Watches
	at.cut(host(second))
	eventually(t, "a watch from the other cluster", func() bool { return one.reflector.Status().Watches > watches })
	eventually(t, "what the other cluster holds", func() bool {
		asked = m.checkBegun(asked)
		_, there := one.resource.Snapshot().Get("n/of the second")
		return there
	})
	lines := logs.FilterMessageSnippet("not kept current").All()
	named := false
	for _, line := range lines {
		reason, _ := line.ContextMap()["reason"].(string)
		named = named || strings.Contains(reason, "more than one cluster answers at its address")
	}
	if !named {
		t.Errorf("it says %v", lines)
	}
	m.awaitKind(t, "configmaps", states.KindSynced)
}
