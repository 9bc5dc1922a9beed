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

// maxRevisionBytes bounds how much is read of a LIST of one item.
const maxRevisionBytes = 16 << 20

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
	text, err := io.ReadAll(io.LimitReader(body, maxRevisionBytes)) // to its end, so that the connection stays
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

// isShared reports whether other requests can travel on it while the watch does: it is HTTP/2.
func (c *watchConn) isShared() bool {
	t, ok := c.conn.(*tls.Conn)
	return ok && t.ConnectionState().NegotiatedProtocol == "h2"
}

// Revision reads the store's revision from the API server that sends the watch under way: behind
// one address there may be several, and even several clusters. So the request must travel on the
// connection of the watch. isSame is false if it cannot, because there is no watch or its
// connection carries one request at a time (HTTP/1.1), or did not.
func (r *Reflector) Revision(ctx context.Context) (rv uint64, isSame bool, err error) {
	s := r.openStream()
	if s == nil || !s.conn.isShared() {
		return 0, false, nil
	}
	var got watchConn
	rv, err = r.client.Revision(got.trace(ctx), r.resource, nil, "probe")
	return rv, err == nil && got.conn == s.conn.conn, err
}
