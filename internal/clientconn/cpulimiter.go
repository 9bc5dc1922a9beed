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
// There is one permit fewer than there are processors, but at least one. A goroutine that acquires
// one yields to writers if no processor would be left. Callers release their permits while they
// wait for their clients, so that a slow client delays no other answer. Permits are given in the
// order of the calls of Acquire, because a channel queues its senders in that order. The nil
// CPULimiter limits nothing.
type CPULimiter struct {
	processors int           // static
	permits    chan struct{} // holds an element for each that is in use
	delivering atomic.Int32  // writers that have something to deliver
	eased      ring.Signal   // a permit was released, or a writer has delivered everything
}

// yieldTimeout is how long a goroutine that acquires a permit yields to writers. If writers never
// finish, each Acquire is delayed by at most this.
const yieldTimeout = 10 * time.Millisecond

// NewCPULimiter makes the CPULimiter of a process that has so many processors.
func NewCPULimiter(processors int) *CPULimiter {
	return &CPULimiter{processors: processors, permits: make(chan struct{}, max(1, processors-1))}
}

// Acquire waits for a permit, yields, and returns how long both took. It holds the permit while it
// yields: otherwise the next in the queue would have it at once, and its turn would be lost.
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
	if l == nil {
		return
	}
	<-l.permits
	if l.delivering.Load() > 0 { // else no call yields
		l.eased.Wake()
	}
}

// InUse is how many permits are held.
func (l *CPULimiter) InUse() int {
	if l == nil {
		return 0
	}
	return len(l.permits)
}

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
		eased := l.eased.Wait()
		if !l.isContended() {
			return
		}
		select {
		case <-eased:
		case <-done.C:
			return
		}
	}
}

// BeginDelivering notes that a writer has something to deliver from now on.
func (l *CPULimiter) BeginDelivering() {
	if l != nil {
		l.delivering.Add(1)
	}
}

// EndDelivering notes that the writer has delivered everything.
func (l *CPULimiter) EndDelivering() {
	if l != nil {
		l.delivering.Add(-1)
		l.eased.Wake()
	}
}

// cpuPermit is the permit that an answer may hold. The answer's goroutine uses it; that of a
// PacedConn is guarded by PacedConn.sendMu.
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
