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

// warningTimeout bounds the question what upstream warns the proxy of: the answer that waits for it
// is whole without it.
const warningTimeout = 5 * time.Second

// recordWarning keeps the warnings of a response that concern the resource. Texts do not tell them
// from warnings about the proxy's credentials, since a definition's author may write anything. But
// warnings about the credentials come with every response, so what the response to /version has,
// too, does not concern the resource. If that request fails, the known warnings stay.
func (r *Reflector) recordWarning(ctx context.Context, head http.Header) {
	warnings, _ := utilnet.ParseWarningHeaders(head.Values("Warning")) // what is malformed is no warning to anyone
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
	_, _ = io.Copy(io.Discard, io.LimitReader(response.Body, maxError)) // so that the connection is used again
	_ = response.Body.Close()
	warnings, _ := utilnet.ParseWarningHeaders(response.Header.Values("Warning"))
	return warnings, nil
}
