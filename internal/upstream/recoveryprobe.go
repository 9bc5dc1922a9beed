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
	probeServing func(context.Context) bool // does upstream serve?

	mu          sync.Mutex
	waiters     int
	recovery    chan struct{} // closed when upstream has answered
	stop        func()        // ends the probe and waits for its end; nil while no request waits
	recoveredAt time.Time     // when upstream was last seen to be back
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
	if p.recovery == nil {
		p.recovery = make(chan struct{})
	}
	if p.waiters++; p.waiters == 1 {
		ctx, cancel := context.WithCancel(context.Background())
		var asking sync.WaitGroup
		asking.Go(func() { p.run(ctx) })
		p.stop = func() {
			cancel()
			asking.Wait()
		}
	}
	return p.recovery, p.leave
}

func (p *recoveryProbe) leave() {
	p.mu.Lock()
	var stop func()
	if p.waiters--; p.waiters == 0 {
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
		serves := p.probeServing(asking)
		cancel()
		if serves {
			p.wakeWaiters()
		}
	}
}

func (p *recoveryProbe) interval() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if time.Since(p.recoveredAt) < recentRecovery {
		return slowProbeInterval
	}
	return probeInterval
}

// wakeWaiters wakes all waiting requests: upstream is back.
func (p *recoveryProbe) wakeWaiters() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.waiters == 0 {
		return
	}
	close(p.recovery)
	p.recovery, p.recoveredAt = make(chan struct{}), time.Now()
}

// Serves reports whether upstream serves. However many mirrors ask, upstream is probed once a
// second at most, and the others get that answer.
func (c *Client) Serves(ctx context.Context) bool {
	c.serving.mu.Lock()
	defer c.serving.mu.Unlock()
	if time.Since(c.serving.probedAt) >= probeInterval {
		asking, cancel := context.WithTimeout(ctx, probeTimeout)
		defer cancel()
		c.serving.serves, c.serving.probedAt = c.probeServing(asking), time.Now()
	}
	return c.serving.serves
}

// servingRecord is what upstream said last.
type servingRecord struct {
	mu       sync.Mutex
	probedAt time.Time
	serves   bool
}

// probeServing reports whether upstream serves, or at least does not say that it does not: 401, 403
// and 404 count as serving.
func (c *Client) probeServing(ctx context.Context) bool {
	code, err := c.readiness(ctx)
	return err == nil && isServing(code)
}

func isServing(code int) bool {
	return code < http.StatusInternalServerError && code != http.StatusTooManyRequests
}

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
