package upstream

import (
	"context"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"
)

const (
	// lookEvery is how often upstream is probed while requests wait for it, and lookSeldom if it has
	// been there already in the last lookAgain, and the requests that were retried had to wait again.
	lookEvery  = time.Second
	lookSeldom = 5 * time.Second
	lookAgain  = 30 * time.Second
	// lookTimeout is how long it may take to say so.
	lookTimeout = 3 * time.Second
	// comeback is the time over which waiting requests are sent again.
	comeback = 1500 * time.Millisecond
)

// lookout notices for all mirrors of an upstream that it is back. Each of them waits longer after
// every failure, since a hundred that ask every second are what an apiserver that starts can least
// bear; and yet all are to be current a few seconds after it has. So one asks for all, and when it,
// or any of them, is answered they are sent again, one after another.
type lookout struct {
	ask func(context.Context) bool // does upstream serve?

	mu      sync.Mutex
	waiting int
	back    chan struct{} // closed when upstream has answered
	stop    func()        // ends the asking and waits for its end; nil while no request waits
	seen    time.Time     // when upstream was last seen to be back
}

// wait waits for d, or until upstream is back, and then for a moment that is not the same for all.
// It reports whether upstream is back.
func (l *lookout) wait(ctx context.Context, d time.Duration) bool {
	back, leave := l.enter()
	defer leave()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-back:
	case <-timer.C:
		return false
	case <-ctx.Done():
		return false
	}
	sleep(ctx, min(d, rand.N(comeback))) // #nosec G404 -- spreads times
	return true
}

// sleep waits for d, or until ctx ends.
func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

func (l *lookout) enter() (back <-chan struct{}, leave func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.back == nil {
		l.back = make(chan struct{})
	}
	if l.waiting++; l.waiting == 1 {
		ctx, cancel := context.WithCancel(context.Background())
		var asking sync.WaitGroup
		asking.Go(func() { l.look(ctx) })
		l.stop = func() {
			cancel()
			asking.Wait()
		}
	}
	return l.back, l.leave
}

func (l *lookout) leave() {
	l.mu.Lock()
	var stop func()
	if l.waiting--; l.waiting == 0 {
		stop, l.stop = l.stop, nil
	}
	l.mu.Unlock()
	if stop != nil {
		stop()
	}
}

// look asks until ctx ends.
func (l *lookout) look(ctx context.Context) {
	for {
		sleep(ctx, spread(l.interval()))
		if ctx.Err() != nil {
			return
		}
		asking, cancel := context.WithTimeout(ctx, lookTimeout)
		serves := l.ask(asking)
		cancel()
		if serves {
			l.answered()
		}
	}
}

func (l *lookout) interval() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if time.Since(l.seen) < lookAgain {
		return lookSeldom
	}
	return lookEvery
}

// answered wakes all waiting requests: upstream is back.
func (l *lookout) answered() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.waiting == 0 {
		return
	}
	close(l.back)
	l.back, l.seen = make(chan struct{}), time.Now()
}

// Serves reports whether upstream serves. However many requests wait, upstream is probed once a
// second at most, and the others hear what it said.
func (c *Client) Serves(ctx context.Context) bool {
	c.served.mu.Lock()
	defer c.served.mu.Unlock()
	if time.Since(c.served.asked) >= lookEvery {
		asking, cancel := context.WithTimeout(ctx, lookTimeout)
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
	req := c.newRequest(ctx, request{path: "/readyz", accept: "*/*"})
	resp, err := c.http.Transport.RoundTrip(req)
	c.contact.note(resp, err)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	return resp.StatusCode, nil
}
