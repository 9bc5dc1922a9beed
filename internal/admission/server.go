package admission

import (
	"container/list"
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"sync"
	"time"

	"go.uber.org/zap"
)

const (
	// connectionLimit bounds how many reviews there can be: the API server sends one after another
	// over each connection.
	connectionLimit = 128
	// headLimitBytes is of a request's head, to which net/http adds 4 KiB. The API server sends
	// some hundred bytes. Once parsed, a head may take thirty times as much.
	headLimitBytes = 4 << 10

	headTimeout   = 5 * time.Second // also of a TLS handshake
	bodyTimeout   = 10 * time.Second
	answerTimeout = 15 * time.Second
	// idleTimeout is longer than the API server's own, which fails a review that meets the end of a
	// connection.
	idleTimeout = 2 * time.Minute
)

// Server is one for reviews. It speaks HTTP/1.1, as the API server does to webhooks: there are no
// streams to be bounded.
func Server(h http.Handler, config *tls.Config, log *zap.Logger) *http.Server {
	config.NextProtos = []string{"http/1.1"}
	c := newConnections(connectionLimit)
	server := &http.Server{
		Handler:           h,
		TLSConfig:         config,
		MaxHeaderBytes:    headLimitBytes,
		ReadHeaderTimeout: headTimeout,
		ReadTimeout:       bodyTimeout,
		WriteTimeout:      answerTimeout,
		IdleTimeout:       idleTimeout,
		ErrorLog:          zap.NewStdLog(log),
		ConnState:         c.changed,
		ConnContext:       c.context,
		Protocols:         new(http.Protocols),
	}
	server.Protocols.SetHTTP1(true)
	return server
}

// connections bounds a server's. At the limit, a new one takes the place of the one that has been
// kept open longest without a complete request: of those that have begun none, or are sending one;
// or else of those that have been answered and are silent. What has sent a complete request keeps
// its place. So silent and slow connections do not keep the API server out.
type connections struct {
	limit int

	mu                sync.Mutex
	all               map[net.Conn]*connection
	incomplete, quiet *list.List // of *connection, longest first
}

// connection is one of them, and where it is; nil: its request is complete.
type connection struct {
	conn  net.Conn
	list  *list.List
	place *list.Element
}

func newConnections(limit int) *connections {
	return &connections{limit: limit, all: map[net.Conn]*connection{}, incomplete: list.New(), quiet: list.New()}
}

// changed implements http.Server.ConnState.
func (c *connections) changed(conn net.Conn, state http.ConnState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch state {
	case http.StateNew:
		if len(c.all) >= c.limit && !c.displaceLocked() {
			abort(conn)
		}
		c.all[conn] = &connection{conn: conn}
		c.moveLocked(conn, c.incomplete)
	case http.StateActive:
		if at := c.all[conn]; at != nil && at.list != c.incomplete { // one that is new has been counted since it came
			c.moveLocked(conn, c.incomplete)
		}
	case http.StateIdle:
		c.moveLocked(conn, c.quiet)
	case http.StateClosed, http.StateHijacked:
		c.moveLocked(conn, nil)
		delete(c.all, conn)
	}
}

// moveLocked puts a connection at the end of a list, or in none.
func (c *connections) moveLocked(conn net.Conn, to *list.List) {
	at := c.all[conn]
	if at == nil {
		return
	}
	if at.list != nil {
		at.list.Remove(at.place)
	}
	if at.list = to; to != nil {
		at.place = to.PushBack(at)
	}
}

// displaceLocked closes the connection that can best be spared. It reports false if there is none.
func (c *connections) displaceLocked() bool {
	for _, from := range []*list.List{c.incomplete, c.quiet} {
		if first := from.Front(); first != nil {
			at := first.Value.(*connection)
			c.moveLocked(at.conn, nil)
			delete(c.all, at.conn)
			abort(at.conn)
			return true
		}
	}
	return false
}

// abort closes a connection without a word: tls.Conn waits for its client to take one.
func abort(conn net.Conn) {
	if over, ok := conn.(*tls.Conn); ok {
		conn = over.NetConn()
	}
	_ = conn.Close()
}

type connectionKey struct{}

// context implements http.Server.ConnContext.
func (c *connections) context(ctx context.Context, conn net.Conn) context.Context {
	return context.WithValue(ctx, connectionKey{}, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.moveLocked(conn, nil)
	})
}

// complete says that the request of a context has arrived completely.
func complete(ctx context.Context) {
	if do, ok := ctx.Value(connectionKey{}).(func()); ok {
		do()
	}
}
