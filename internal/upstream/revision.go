package upstream

import (
	"context"
	"crypto/tls"
	"net"
	"net/http/httptrace"
	"net/url"
)

// watchConn is the connection that a watch travels on.
type watchConn struct{ conn net.Conn }

// trace notes the connection that the request of ctx gets.
func (c *watchConn) trace(ctx context.Context) context.Context {
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn: func(info httptrace.GotConnInfo) { c.conn = info.Conn },
	})
}

// shared reports that other requests can travel on it while the watch does: it is HTTP/2.
func (c *watchConn) shared() bool {
	t, ok := c.conn.(*tls.Conn)
	return ok && t.ConnectionState().NegotiatedProtocol == "h2"
}

// Revision asks upstream how far it is, as Prober.Begin does, on the connection of the watch under
// way, so that the apiserver answers that the watch is from: behind one address there may be
// several, and even several clusters. same is false if that cannot be, since there is no watch, its
// connection carries nothing else (HTTP/1.1), or another one took the question.
func (r *Reflector) Revision(ctx context.Context) (rv uint64, same bool, err error) {
	r.mu.Lock()
	s := r.stream
	r.mu.Unlock()
	if s == nil || !s.carrier.shared() {
		return 0, false, nil
	}
	var got watchConn
	question := r.client.NewProber(r.resource).request("list", url.Values{"limit": {"1"}}, partialList)
	rv, err = r.client.revision(got.trace(ctx), r.client.http.Transport, question)
	return rv, err == nil && got.conn == s.carrier.conn, err
}
