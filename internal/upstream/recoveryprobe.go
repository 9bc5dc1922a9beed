package upstream

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"
)

const (
	// slowProbeInterval takes the place of probeInterval if upstream recovered within recentRecovery
	// and the retried requests had to wait again.
	slowProbeInterval = 5 * time.Second
	recentRecovery    = 30 * time.Second
	// recoverySpread is the time over which the waiting requests are sent again.
	recoverySpread = 1500 * time.Millisecond
)

// recoveryProbe finds out for all mirrors that upstream serves again. Each mirror backs off after
// every failure, because an API server that starts cannot bear a hundred clients that retry every
// second. Yet all mirrors are to be current a few seconds after it has started. So one probe runs
// for all; when it or any request is answered, all waiting requests are sent again, spread out.
type recoveryProbe struct {
	probe func(context.Context) bool // does upstream serve?

	mu          sync.Mutex
	waiters     int
	recovery    chan struct{} // closed when upstream serves again
	stop        func()        // ends the probe and waits for its end; nil while no request waits
	recoveredAt time.Time     // when upstream was last seen to serve again
}

// wait waits for d, or until upstream serves again and then for a part of recoverySpread. It
// reports whether upstream serves again.
func (p *recoveryProbe) wait(ctx context.Context, d time.Duration) bool {
	recovery := p.join()
	defer p.leave()
	waiting, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	select {
	case <-recovery:
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

// join counts a waiting request; the first one starts the probe. leave must follow.
func (p *recoveryProbe) join() (recovery <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.recovery == nil {
		p.recovery = make(chan struct{})
	}
	if p.waiters++; p.waiters == 1 {
		ctx, cancel := context.WithCancel(context.Background())
		var running sync.WaitGroup
		running.Go(func() { p.run(ctx) })
		p.stop = func() {
			cancel()
			running.Wait()
		}
	}
	return p.recovery
}

// leave ends the probe with the last waiting request.
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
		if p.probe(ctx) {
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

// wakeWaiters wakes all waiting requests, because upstream serves again.
func (p *recoveryProbe) wakeWaiters() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.waiters == 0 {
		return
	}
	close(p.recovery)
	p.recovery, p.recoveredAt = make(chan struct{}), time.Now()
}
