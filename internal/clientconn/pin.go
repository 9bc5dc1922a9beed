package clientconn

import (
	"cmp"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// pin is a large answer that keeps an old state alive until its client has taken it: a LIST, or the
// initial events of a watch. A pin may last as long as its client makes progress, as with
// kube-apiserver. It costs memory alone, so only a shortage ends it.
type pin struct {
	// Static after construction.
	bytes int64  // of the state that it keeps alive
	wake  func() // makes a write that waits return once the pin is evicted; nil: writes look by themselves

	takenBytes atomic.Int64 // by the client
	// sendTime is how long writes have waited for the client, in nanoseconds. The time in which the
	// answer is made is not the client's.
	sendTime     atomic.Int64
	waitingSince atomic.Int64 // when the write began that waits now, in nanoseconds since pinEpoch; 0: none does

	evicted atomic.Pointer[error] // ErrSlow or ErrCrowded; nil: it is not
}

// ErrSlow and ErrCrowded are why a pin ends before its client has taken the answer.
var (
	ErrSlow    = errors.New("the client was too slow while memory was short")
	ErrCrowded = errors.New("the client was too slow while others waited for room")
)

// pinEpoch is where times of pins are counted from.
var pinEpoch = time.Now()

// addProgress counts what a write took from the answer, and how long that kept it waiting.
func (p *pin) addProgress(taken int, spent time.Duration) {
	p.takenBytes.Add(int64(taken))
	p.sendTime.Add(int64(spent))
}

// beginWait and endWait enclose a write that looks at nothing while it waits.
func (p *pin) beginWait() { p.waitingSince.Store(max(1, int64(time.Since(pinEpoch)))) }

func (p *pin) endWait() {
	if began := p.waitingSince.Swap(0); began != 0 {
		p.sendTime.Add(int64(time.Since(pinEpoch)) - began)
	}
}

// isSlower reports that the client has taken less than a rate, in bytes per second, and was waited
// for at least so long.
func (p *pin) isSlower(rate float64, least time.Duration) bool {
	spent := time.Duration(p.sendTime.Load())
	if began := p.waitingSince.Load(); began != 0 {
		spent += time.Since(pinEpoch) - time.Duration(began)
	}
	return spent >= least && float64(p.takenBytes.Load()) < rate*spent.Seconds()
}

// evictionReason is why the pin is evicted; nil: it is not. The nil pin never is.
func (p *pin) evictionReason() error {
	if p != nil {
		if why := p.evicted.Load(); why != nil {
			return *why
		}
	}
	return nil
}

// pins is the set of all pins.
type pins struct {
	mu  sync.Mutex
	all map[*pin]struct{}
}

func (s *pins) add(p *pin) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all == nil {
		s.all = map[*pin]struct{}{}
	}
	s.all[p] = struct{}{}
}

func (s *pins) drop(p *pin) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.all, p)
}

// evictedFraction: one in so many of those that may be evicted is evicted at a time. The next look
// shows whether that was enough.
const evictedFraction = 16

// evictSlow evicts the most expensive of the pins that are slower than a rate: one in fraction of
// them, and one at least.
func (s *pins) evictSlow(rate float64, least time.Duration, why error, fraction int) {
	s.mu.Lock()
	var slow []*pin
	for p := range s.all {
		if p.isSlower(rate, least) {
			slow = append(slow, p)
		}
	}
	slices.SortFunc(slow, func(a, b *pin) int { return cmp.Compare(b.bytes, a.bytes) })
	slow = slow[:min(len(slow), max(1, len(slow)/fraction))]
	for _, p := range slow {
		p.evicted.Store(&why)
		delete(s.all, p)
	}
	s.mu.Unlock()
	for _, p := range slow {
		if p.wake != nil {
			p.wake()
		}
	}
}
