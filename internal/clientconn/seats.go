package clientconn

import (
	"sync/atomic"
	"time"

	"spillway/internal/ring"
)

// Seats is a semaphore for large answers, lists and initial states: a goroutine holds a seat while
// it makes, encrypts and sends one. (kube-apiserver's flow control has seats, too.) Events are
// urgent and little work, large answers are much work and not urgent. Without seats a herd of them
// takes all processors, and writers of events compete with it.
//
// There is one seat fewer than there are processors, and a goroutine that takes one yields to
// writers if no processor would be left. It gives its seat up while it waits for its client, so a
// slow client delays no other answer, and gets one again in the order of requests. It keeps the
// seat during system calls that send, which are work. Nil Seats bound nothing.
type Seats struct {
	processors int           // static
	taken      chan struct{} // one for each
	delivering atomic.Int32  // writers that have something to deliver
	delivered  ring.Signal   // one of them has delivered it
}

// yieldTimeout is how long a goroutine that takes a seat yields to writers. If they are never done,
// lists advance by a piece after each.
const yieldTimeout = 10 * time.Millisecond

// NewSeats makes the seats of a process that has so many processors.
func NewSeats(processors int) *Seats {
	return &Seats{processors: processors, taken: make(chan struct{}, max(1, processors-1))}
}

// Acquire waits for a seat, and returns how long it waited.
func (t *Seats) Acquire() (waited time.Duration) {
	if t == nil {
		return 0
	}
	var began time.Time // zero: no wait yet
	select {
	case t.taken <- struct{}{}:
	default:
		began = time.Now()
		t.taken <- struct{}{}
	}
	if t.contended() {
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
func (t *Seats) Release() {
	if t != nil {
		<-t.taken
	}
}

// InUse is how many seats are taken.
func (t *Seats) InUse() int { return len(t.taken) }

// contended reports that writers and large answers leave no processor.
func (t *Seats) contended() bool {
	n := int(t.delivering.Load())
	return n > 0 && n+len(t.taken) >= t.processors
}

// yield waits until the processors are not contended, but not longer than yieldTimeout.
func (t *Seats) yield() {
	done := time.NewTimer(yieldTimeout)
	defer done.Stop()
	for {
		delivered := t.delivered.Wait()
		if !t.contended() {
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
func (t *Seats) SetDelivering(something bool) {
	switch {
	case t == nil:
	case something:
		t.delivering.Add(1)
	default:
		t.delivering.Add(-1)
		t.delivered.Wake()
	}
}

// seat is the one that an answer may have.
type seat struct {
	of   *Seats
	held bool
}

// setHeld acquires or releases the seat, unless it is in that state already.
func (l *seat) setHeld(wanted bool) {
	switch {
	case wanted && !l.held:
		l.of.Acquire()
	case l.held && !wanted:
		l.of.Release()
	}
	l.held = wanted
}
