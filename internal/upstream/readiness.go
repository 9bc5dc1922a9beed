package upstream

import (
	"context"
	"net/http"
	"sync"
	"time"
)

const (
	// probeTimeout is how long a probe of /readyz may take.
	probeTimeout = 3 * time.Second
	// probeInterval is how often upstream is probed while requests wait for it, or mirrors need to
	// know whether it serves.
	probeInterval = time.Second
)

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

// servingProbes are the probes that the callers of Serves share. None belongs to one caller: it
// ends when upstream has answered, after probeTimeout, or with the Client.
type servingProbes struct {
	probe func(context.Context) bool

	mu   sync.Mutex
	last *servingProbe // nil before the first
}

// servingProbe is one probe.
type servingProbe struct {
	cancel context.CancelFunc
	done   chan struct{} // closed at its end, when the rest is set

	serves  bool
	endedAt time.Time
}

// latest is the last probe, unless that is too old: then it begins another one.
func (s *servingProbes) latest() *servingProbe {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.last != nil && !s.last.isOld() {
		return s.last
	}
	ctx, cancel := context.WithCancel(context.Background())
	p := &servingProbe{cancel: cancel, done: make(chan struct{})}
	s.last = p
	go func() {
		defer cancel()
		p.serves = s.probe(ctx)
		p.endedAt = time.Now()
		close(p.done)
	}()
	return p
}

func (p *servingProbe) isOld() bool {
	select {
	case <-p.done:
		return time.Since(p.endedAt) >= probeInterval
	default:
		return false
	}
}

// stop ends the probe under way.
func (s *servingProbes) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.last != nil {
		s.last.cancel()
	}
}
