package clientconn

import (
	"sync/atomic"
	"time"

	"spillway/internal/ring"
)

// CPULimiter is a semaphore for large answers, lists and initial states: a goroutine holds a seat
// while it makes, encrypts and sends one. (kube-apiserver's flow control has seats, too.) Events
// are urgent and little work, large answers are much work and not urgent. Without seats a herd of
// them takes all processors, and writers of events compete with it.
//
// There is one seat fewer than there are processors, and a goroutine that takes one yields to
// writers if no processor would be left. It gives its seat up while it waits for its client, so a
// slow client delays no other answer, and gets one again in the order of requests. It keeps the
// seat during system calls that send, which are work. Nil CPULimiter bound nothing.
type CPULimiter struct {
	processors int           // static
	permits    chan struct{} // one for each
	delivering atomic.Int32  // writers that have something to deliver
	delivered  ring.Signal   // one of them has delivered it
}

// yieldTimeout is how long a goroutine that takes a seat yields to writers. If they are never done,
// lists advance by a piece after each.
const yieldTimeout = 10 * time.Millisecond

// NewCPULimiter makes the seats of a process that has so many processors.
func NewCPULimiter(processors int) *CPULimiter {
	return &CPULimiter{processors: processors, permits: make(chan struct{}, max(1, processors-1))}
}

// Acquire waits for a seat, and returns how long it waited.
func (t *CPULimiter) Acquire() (waited time.Duration) {
	if t == nil {
		return 0
	}
	var began time.Time // zero: no wait yet
	select {
	case t.permits <- struct{}{}:
	default:
		began = time.Now()
		t.permits <- struct{}{}
	}
	if t.isContended() {
		if began.IsZero() {
			began = time.Now()
		}
		t.yield()
	}
	if began.IsZero() {
		return 0
	}
	return time.Since(began)
}

// Release gives a seat back.
func (t *CPULimiter) Release() {
	if t != nil {
		<-t.permits
	}
}

// InUse is how many seats are taken.
func (t *CPULimiter) InUse() int { return len(t.permits) }

// isContended reports that writers and large answers leave no processor.
func (t *CPULimiter) isContended() bool {
	n := int(t.delivering.Load())
	return n > 0 && n+len(t.permits) >= t.processors
}

// yield waits until the processors are not contended, but not longer than yieldTimeout.
func (t *CPULimiter) yield() {
	done := time.NewTimer(yieldTimeout)
	defer done.Stop()
	for {
		delivered := t.delivered.Wait()
		if !t.isContended() {
			return
		}
		select {
		case <-delivered:
		case <-done.C:
			return
		}
	}
}

// SetDelivering tells that a writer has something to deliver from now on, or has delivered
// everything.
func (t *CPULimiter) SetDelivering(something bool) {
	switch {
	case t == nil:
	case something:
		t.delivering.Add(1)
	default:
		t.delivering.Add(-1)
		t.delivered.Wake()
	}
}

// cpuPermit is the one that an answer may have.
type cpuPermit struct {
	limiter *CPULimiter
	held    bool
}

// setHeld acquires or releases the seat, unless it is in that state already.
func (l *cpuPermit) setHeld(wanted bool) {
	switch {
	case wanted && !l.held:
		l.limiter.Acquire()
	case l.held && !wanted:
		l.limiter.Release()
	}
	l.held = wanted
}
