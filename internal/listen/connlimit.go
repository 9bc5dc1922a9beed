package listen

import (
	"container/list"
	"context"
	"net"
	"net/http"
	"sync"

	"spillway/internal/tlsconn"
)

// connLimit bounds the connections of a server. At the limit, a new one takes the place of the one
// that has been open longest without a complete request: of those that have begun none, or are
// sending one; or else of those that have been answered and are silent. A connection that has sent
// a complete request keeps its place, and if all have, the new one is closed. So silent and slow
// clients keep no others out, as they could by a limit at which accepting stops.
type connLimit struct {
	limit int

	mu                sync.Mutex
	all               map[net.Conn]*limitedConn
	incomplete, quiet *list.List // of *limitedConn, longest first
}

// limitedConn is a connection, and the list in which it waits to be closed; nil: its request is
// complete, and it waits in none.
type limitedConn struct {
	conn  net.Conn
	list  *list.List
	place *list.Element
}

// LimitConns bounds the connections of a server of HTTP/1.1. Its handlers call RequestArrived.
func LimitConns(server *http.Server, limit int) {
	c := newConnLimit(limit)
	server.ConnState, server.ConnContext = c.changed, c.context
}

func newConnLimit(limit int) *connLimit {
	return &connLimit{limit: limit, all: map[net.Conn]*limitedConn{}, incomplete: list.New(), quiet: list.New()}
}

type requestArrivedKey struct{}

// RequestArrived notes that the request of a context has arrived completely.
func RequestArrived(ctx context.Context) {
	if do, ok := ctx.Value(requestArrivedKey{}).(func()); ok {
		do()
	}
}

// context implements http.Server.ConnContext.
func (c *connLimit) context(ctx context.Context, conn net.Conn) context.Context {
	return context.WithValue(ctx, requestArrivedKey{}, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.removeLocked(c.all[conn])
	})
}

// changed implements http.Server.ConnState.
func (c *connLimit) changed(conn net.Conn, state http.ConnState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	at := c.all[conn]
	switch state {
	case http.StateNew:
		if len(c.all) >= c.limit && !c.displaceLocked() {
			abort(conn)
		}
		at = &limitedConn{conn: conn}
		c.all[conn] = at
		c.moveLocked(at, c.incomplete)
	case http.StateActive:
		if at != nil && at.list != c.incomplete { // a new one keeps the place that it has had since it came
			c.moveLocked(at, c.incomplete)
		}
	case http.StateIdle:
		c.moveLocked(at, c.quiet)
	case http.StateClosed, http.StateHijacked:
		c.removeLocked(at)
		delete(c.all, conn)
	}
}

// moveLocked puts a connection at the end of a list; nil is one that was displaced.
func (c *connLimit) moveLocked(at *limitedConn, to *list.List) {
	if c.removeLocked(at); at != nil {
		at.list, at.place = to, to.PushBack(at)
	}
}

// removeLocked takes a connection out of its list, if it is in one.
func (c *connLimit) removeLocked(at *limitedConn) {
	if at != nil && at.list != nil {
		at.list.Remove(at.place)
		at.list, at.place = nil, nil
	}
}

// displaceLocked closes the connection that can best be spared. It reports false if there is none.
func (c *connLimit) displaceLocked() bool {
	for _, from := range []*list.List{c.incomplete, c.quiet} {
		if first := from.Front(); first != nil {
			at := first.Value.(*limitedConn)
			c.removeLocked(at)
			delete(c.all, at.conn)
			abort(at.conn)
			return true
		}
	}
	return false
}

// abort closes a connection without the last words of TLS: tls.Conn would wait for its client to
// take them.
func abort(conn net.Conn) {
	if over, ok := conn.(tlsconn.LayeredConn); ok {
		conn = over.NetConn()
	}
	_ = conn.Close()
}
