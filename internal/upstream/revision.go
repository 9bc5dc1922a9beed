package upstream

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"spillway/internal/object"
	"spillway/internal/upstream/wire"
)

// maxProbeBytes bounds what is read of a LIST of one item.
const maxProbeBytes = 16 << 20

// Revision is the store's revision: the version of a LIST of one item that starts now (W-211c). It
// travels on via, or else on the client's connections.
func (c *Client) Revision(ctx context.Context, resource *object.Resource, via http.RoundTripper, purpose string) (
	uint64, error) {
	r := GetRequestFor("list", resource, metav1.ListOptions{Limit: 1})
	r.OnlyMetadata, r.Via, r.Purpose = true, via, purpose
	body, err := c.Get(ctx, r)
	if err != nil {
		return 0, err
	}
	defer body.Close()
	text, err := io.ReadAll(io.LimitReader(body, maxProbeBytes+1)) // to its end, so that the connection stays
	if err != nil {
		return 0, fmt.Errorf("probe of %s: %w", r.Resource, err)
	}
	var list struct {
		Metadata struct {
			ResourceVersion string `json:"resourceVersion"`
		} `json:"metadata"`
	}
	if err := json.Unmarshal(text, &list); err != nil {
		return 0, fmt.Errorf("probe of %s: %w", r.Resource, err)
	}
	return wire.ParseRV(list.Metadata.ResourceVersion)
}

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
	s := r.openStream()
	if s == nil || !s.carrier.shared() {
		return 0, false, nil
	}
	var got watchConn
	rv, err = r.client.Revision(got.trace(ctx), r.resource, nil, "probe")
	return rv, err == nil && got.conn == s.carrier.conn, err
}
