package upstream

import (
	"context"
	"net/http"
	"time"
)

// probeTimeout is how long a probe of /readyz may take.
const probeTimeout = 3 * time.Second

// readiness is the status with which upstream answers whether it is ready.
func (c *Client) readiness(ctx context.Context) (int, error) {
	req := c.newRequest(ctx, GetRequest{Path: "/readyz"})
	req.Header.Set("Accept", "*/*")
	resp, err := c.http.Transport.RoundTrip(req)
	c.contact.recordResult(resp, err)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	return resp.StatusCode, nil
}

// isServing reports that an answer to /readyz does not say that upstream is not ready: 401, 403 and
// 404 count as serving.
func isServing(code int) bool {
	return code < http.StatusInternalServerError && code != http.StatusTooManyRequests
}

// probeServing reports whether upstream serves.
func (c *Client) probeServing(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	code, err := c.readiness(ctx)
	return err == nil && isServing(code)
}

// answersInTime reports whether upstream answers /readyz in promptAnswerTimeout, with any status.
func (c *Client) answersInTime(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, promptAnswerTimeout)
	defer cancel()
	_, err := c.readiness(ctx)
	return err == nil
}

// Serves reports whether upstream serves; false if ctx ends before that is known. However many
// mirrors call it, upstream is probed once a second at most, and all get that answer.
func (c *Client) Serves(ctx context.Context) bool {
	p := c.servingProbes.latest()
	select {
	case <-p.done:
		return p.serves
	case <-ctx.Done():
		return false
	}
}
