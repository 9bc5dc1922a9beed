package upstream

import (
	"context"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"
)

const (
	// probeInterval is how often upstream is probed while requests wait for it. It is
	// slowProbeInterval if upstream recovered within recentRecovery and the retried requests had to
	// wait again.
	probeInterval     = time.Second
	slowProbeInterval = 5 * time.Second
	recentRecovery    = 30 * time.Second
	// probeTimeout is how long a probe may take.
	probeTimeout = 3 * time.Second
	// recoverySpread is the time over which the waiting requests are sent again.
	recoverySpread = 1500 * time.Millisecond
)

// recoveryProbe finds out for all mirrors that upstream serves again. Each mirror backs off after
// every failure, since an apiserver that starts cannot bear a hundred clients that retry every
// second. Yet all mirrors are to be current a few seconds after it has started. So one probe runs
// for all; when it or any request is answered, all waiting requests are sent again, spread out.
type recoveryProbe struct {
	ask func(context.Context) bool // does upstream serve?

	mu      sync.Mutex
	waiting int
	back    chan struct{} // closed when upstream has answered
	stop    func()        // ends the probe and waits for its end; nil while no request waits
	seen    time.Time     // when upstream was last seen to be back
}

// wait waits for d, or until upstream is back, and then for a moment that is not the same for all.
// It reports whether upstream is back.
func (p *recoveryProbe) wait(ctx context.Context, d time.Duration) bool {
	back, leave := p.enter()
	defer leave()
	waiting, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	select {
	case <-back:
	case <-waiting.Done():
		return false
	}
	sleep(ctx, min(d, rand.N(recoverySpread))) // #nosec G404 -- spreads times
	return true
}

// sleep waits for d, or until ctx ends.
func sleep(ctx context.Context, d time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	<-ctx.Done()
}

func (p *recoveryProbe) enter() (back <-chan struct{}, leave func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.back == nil {
		p.back = make(chan struct{})
	}
	if p.waiting++; p.waiting == 1 {
		ctx, cancel := context.WithCancel(context.Background())
		var asking sync.WaitGroup
		asking.Go(func() { p.run(ctx) })
		p.stop = func() {
			cancel()
			asking.Wait()
		}
	}
	return p.back, p.leave
}

func (p *recoveryProbe) leave() {
	p.mu.Lock()
	var stop func()
	if p.waiting--; p.waiting == 0 {
		stop, p.stop = p.stop, nil
	}
	p.mu.Unlock()
	if stop != nil {
		stop()
	}
}

// run probes until ctx ends.
func (p *recoveryProbe) run(ctx context.Context) {
	for {
		sleep(ctx, spread(p.interval()))
		if ctx.Err() != nil {
			return
		}
		asking, cancel := context.WithTimeout(ctx, probeTimeout)
		serves := p.ask(asking)
		cancel()
		if serves {
			p.answered()
		}
	}
}

func (p *recoveryProbe) interval() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if time.Since(p.seen) < recentRecovery {
		return slowProbeInterval
	}
	return probeInterval
}

// answered wakes all waiting requests: upstream is back.
func (p *recoveryProbe) answered() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.waiting == 0 {
		return
	}
	close(p.back)
	p.back, p.seen = make(chan struct{}), time.Now()
}

// Serves reports whether upstream serves. However many requests wait, upstream is probed once a
// second at most, and the others hear what it said.
func (c *Client) Serves(ctx context.Context) bool {
	c.served.mu.Lock()
	defer c.served.mu.Unlock()
	if time.Since(c.served.asked) >= probeInterval {
		asking, cancel := context.WithTimeout(ctx, probeTimeout)
		defer cancel()
		c.served.said, c.served.asked = c.serves(asking), time.Now()
	}
	return c.served.said
}

// served is what upstream said last.
type served struct {
	mu    sync.Mutex
	asked time.Time
	said  bool
}

// serves reports whether upstream serves, or at least does not say that it does not: which users
// may probe that is its own matter.
func (c *Client) serves(ctx context.Context) bool {
	code, err := c.readiness(ctx)
	return err == nil && serving(code)
}

func serving(code int) bool {
	return code < http.StatusInternalServerError && code != http.StatusTooManyRequests
}

// readiness is the status with which upstream answers whether it is ready.
func (c *Client) readiness(ctx context.Context) (int, error) {
	req, err := c.newRequest(ctx, GetRequest{Path: "/readyz"})
	if err != nil {
		return 0, err
	}
	req.Header.Set("Accept", "*/*")
	resp, err := c.http.Transport.RoundTrip(req)
	c.contact.note(resp, err)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	return resp.StatusCode, nil
}
