package admin

import (
	"container/list"
	"net"
	"net/http"
	"sync"
	"time"
)

const (
	// operatorConnectionsLimit is how many connections operators and probes have at a time, and
	// operatorHeadBytes how large a request's head may be (net/http adds 4 KiB): together they
	// bound what clients without credentials make the process hold.
	operatorConnectionsLimit = 64
	operatorHeadBytes        = 16 << 10
	// operatorRequestsLimit is how many answers of size (metrics, the status page, profiles) are made
	// at a time.
	operatorRequestsLimit = 8

	operatorReadTimeout  = 10 * time.Second
	operatorWriteTimeout = 30 * time.Second // pprof extends it for its profiles
	operatorIdleTimeout  = 2 * time.Minute
)

// boundServer gives a server of small answers the limits of a listener that any pod may reach.
// HTTP/2 is off: its streams and header tables would need limits of their own.
func boundServer(server *http.Server) {
	server.MaxHeaderBytes = operatorHeadBytes
	server.ReadHeaderTimeout, server.ReadTimeout = operatorReadTimeout, operatorReadTimeout
	server.WriteTimeout, server.IdleTimeout = operatorWriteTimeout, operatorIdleTimeout
	server.Protocols = new(http.Protocols)
	server.Protocols.SetHTTP1(true)
}

// boundedListener accepts any number of connections and keeps a bounded number open. A connection
// too many ends the one that has waited longest for a request or for the rest of its head, so that
// slow clients cannot keep a probe out, as they could by a limit at which accepting stops. While
// all are being answered, it is the new one that ends.
//
// Serve it by a server whose ConnState is its own.
type boundedListener struct {
	net.Listener
	limit int

	mu      sync.Mutex
	open    map[net.Conn]*list.Element // nil while the connection is being answered
	waiting list.List                  // of net.Conn, the longest first
}

func newBoundedListener(l net.Listener, limit int) *boundedListener {
	return &boundedListener{Listener: l, limit: limit, open: map[net.Conn]*list.Element{}}
}

// Accept implements net.Listener.
func (b *boundedListener) Accept() (net.Conn, error) {
	for {
		c, err := b.Listener.Accept()
		if err != nil {
			return nil, err
		}
		accepted := &boundedConn{Conn: c, listener: b}
		victim := b.admit(accepted)
		if victim != nil {
			_ = victim.Close()
		}
		if victim != accepted {
			return accepted, nil
		}
	}
}

// admit counts a connection in, and returns the one that has to end for it; nil: none.
func (b *boundedListener) admit(c net.Conn) net.Conn {
	b.mu.Lock()
	defer b.mu.Unlock()
	var victim net.Conn
	if len(b.open) >= b.limit {
		oldest := b.waiting.Front()
		if oldest == nil {
			return c
		}
		victim = oldest.Value.(net.Conn)
		b.forgetLocked(victim)
	}
	b.open[c] = b.waiting.PushBack(c)
	return victim
}

func (b *boundedListener) forgetLocked(c net.Conn) {
	if waits := b.open[c]; waits != nil {
		b.waiting.Remove(waits)
	}
	delete(b.open, c)
}

// connState follows a connection: net/http calls it active once a head has arrived.
func (b *boundedListener) connState(c net.Conn, state http.ConnState) {
	if secure, ok := c.(interface{ NetConn() net.Conn }); ok {
		c = secure.NetConn()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	waits, found := b.open[c]
	switch {
	case !found:
	case state == http.StateActive && waits != nil:
		b.waiting.Remove(waits)
		b.open[c] = nil
	case state == http.StateIdle && waits == nil:
		b.open[c] = b.waiting.PushBack(c)
	}
}

// boundedConn gives its place back when it is closed.
type boundedConn struct {
	net.Conn
	listener *boundedListener
}

// Close implements net.Conn.
func (c *boundedConn) Close() error {
	c.listener.mu.Lock()
	c.listener.forgetLocked(c)
	c.listener.mu.Unlock()
	return c.Conn.Close()
}

// atMost lets a number of requests be answered at a time, and refuses the others.
func atMost(limit int, next http.Handler) http.Handler {
	seats := make(chan struct{}, limit)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case seats <- struct{}{}:
			defer func() { <-seats }()
			next.ServeHTTP(w, r)
		default:
			w.Header().Set("Retry-After", "1")
			http.Error(w, "too many requests are being answered here: try again", http.StatusServiceUnavailable)
		}
	})
}
