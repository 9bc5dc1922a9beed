package upstream

import (
	"context"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"
)

// warningTimeout bounds the request that finds out what upstream warns the proxy of. An answer
// waits for it, and is complete without it.
const warningTimeout = 5 * time.Second

// recordWarning keeps the warnings of a response that concern the resource. Their texts do not show
// whether they are about the proxy's credentials instead, because a definition's author may write
// anything. But warnings about the credentials come with every response. So a warning that the
// response to /version has, too, does not concern the resource. If that request fails, the known
// warnings stay.
func (r *Reflector) recordWarning(ctx context.Context, head http.Header) {
	warnings, _ := utilnet.ParseWarningHeaders(head.Values("Warning")) // clients ignore malformed ones, too
	if len(warnings) > 0 {
		ours, err := r.client.warnings(ctx)
		if err != nil {
			return
		}
		warnings = slices.DeleteFunc(warnings, func(w utilnet.WarningHeader) bool { return slices.Contains(ours, w) })
	}
	texts := make([]string, 0, len(warnings))
	for _, w := range warnings {
		if text, err := utilnet.NewWarningHeader(w.Code, w.Agent, w.Text); err == nil {
			texts = append(texts, text)
		}
	}
	r.warning.Store(new(strings.Join(texts, ", ")))
}

// warnings are what upstream warns of in every answer to the proxy's credentials.
func (c *Client) warnings(ctx context.Context) ([]utilnet.WarningHeader, error) {
	ctx, cancel := context.WithTimeout(ctx, warningTimeout)
	defer cancel()
	response, err := c.http.Transport.RoundTrip(c.newRequest(ctx, GetRequest{Verb: "get", Path: "/version"}))
	if err != nil {
		return nil, err
	}
	_, _ = io.Copy(io.Discard, io.LimitReader(response.Body, maxErrorBytes)) // so that the connection is used again
	_ = response.Body.Close()
	warnings, _ := utilnet.ParseWarningHeaders(response.Header.Values("Warning"))
	return warnings, nil
}
