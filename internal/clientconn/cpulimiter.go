package clientconn

import (
	"sync/atomic"
	"time"

	"spillway/internal/ring"
)

// CPULimiter is a semaphore for large answers, lists and initial states: a goroutine holds a permit
// while it makes, encrypts and sends one. Events are urgent and little work, large answers are much
// work and not urgent. Without permits a herd of them takes all processors, and writers of events
// compete with it.
//
// There is one permit fewer than there are processors, and a goroutine that acquires one yields to
// writers if no processor would be left. It releases its permit while it waits for its client, so a
// slow client delays no other answer, and acquires one again in the order of requests. It keeps the
// permit during system calls that send, which are work. The nil CPULimiter limits nothing.
type CPULimiter struct {
	processors int           // static
	permits    chan struct{} // holds an element for each that is in use
	delivering atomic.Int32  // writers that have something to deliver
	delivered  ring.Signal   // one of them has delivered it
}

// yieldTimeout is how long a goroutine that acquires a permit yields to writers. If they are never
// done, lists advance by a piece after each.
const yieldTimeout = 10 * time.Millisecond

// NewCPULimiter makes the CPULimiter of a process that has so many processors.
func NewCPULimiter(processors int) *CPULimiter {
	return &CPULimiter{processors: processors, permits: make(chan struct{}, max(1, processors-1))}
}

// Acquire waits for a permit, and returns how long it waited.
func (l *CPULimiter) Acquire() (waited time.Duration) {
	if l == nil {
		return 0
	}
	began := time.Now()
	l.permits <- struct{}{}
	if l.isContended() {
		l.yield()
	}
	return time.Since(began)
}

// Release gives a permit back.
func (l *CPULimiter) Release() {
	if l != nil {
		<-l.permits
	}
}

// InUse is how many permits are held.
func (l *CPULimiter) InUse() int { return len(l.permits) }

// isContended reports that writers and large answers leave no processor.
func (l *CPULimiter) isContended() bool {
	n := int(l.delivering.Load())
	return n > 0 && n+len(l.permits) >= l.processors
}

// yield waits until the processors are not contended, but not longer than yieldTimeout.
func (l *CPULimiter) yield() {
	done := time.NewTimer(yieldTimeout)
	defer done.Stop()
	for {
		delivered := l.delivered.Wait()
		if !l.isContended() {
			return
		}
		select {
		case <-delivered:
		case <-done.C:
			return
		}
	}
}

// SetDelivering notes that a writer has something to deliver from now on, or has delivered
// everything.
func (l *CPULimiter) SetDelivering(something bool) {
	switch {
	case l == nil:
	case something:
		l.delivering.Add(1)
	default:
		l.delivering.Add(-1)
		l.delivered.Wake()
	}
}

// cpuPermit is the permit that an answer may hold.
type cpuPermit struct {
	limiter *CPULimiter
	held    bool
}

// setHeld acquires or releases the permit, unless it is in that state already.
func (p *cpuPermit) setHeld(wanted bool) {
	switch {
	case wanted && !p.held:
		p.limiter.Acquire()
	case p.held && !wanted:
		p.limiter.Release()
	}
	p.held = wanted
}
