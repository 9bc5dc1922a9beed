package upstream

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/watch"
)

const (
	// endMarkTimeout is how long a watch-list may make no progress before its initial events end:
	// upstream sends the bookmark that ends them with the last of them, as soon as its cache is
	// current, which takes it 3 s at most (W-65).
	endMarkTimeout = 10 * time.Second
	// progressBytes is how many bytes of initial events are progress.
	progressBytes = 64 << 10
	// promptAnswerTimeout is how soon upstream must answer another request for the end of a
	// watch-list to be missing, and not late.
	promptAnswerTimeout = time.Second
	// unendedLimit is how many watch-lists in a row may end cleanly without that bookmark before a
	// LIST takes their place: an API server that restarts ends one.
	unendedLimit = 2
	// watchListHeadTimeout is how long the head of a watch-list may take before a LIST is tried,
	// which has headTimeout.
	watchListHeadTimeout = 20 * time.Second
	// listFallbackPeriod is for how long a mirror lists after a watch-list did not end its initial
	// events. Trying another one costs endMarkTimeout.
	listFallbackPeriod = time.Hour
)

// errNoEnd says that a watch-list ended before it was complete.
var errNoEnd = errors.New("the watch-list ended before its initial events did")

// errNoEndMark says that a watch-list has not ended its initial events.
type errNoEndMark struct{ wait time.Duration }

func (e errNoEndMark) Error() string {
	return fmt.Sprintf("the watch-list did not end its initial events: no bookmark and no progress for %s; a proxy "+
		"in front of the API server may drop bookmarks", e.wait)
}

// endMark ends a watch-list whose initial events do not end. If upstream does not answer another
// request in time either, it is slow, and has more time. Initial events are ADDED, so any other
// event comes after them and is no progress: a busy resource's watch-list would otherwise look
// alive without end.
type endMark struct {
	wait          time.Duration
	answersInTime func() bool // whether upstream answers another request in time
	onMissing     func(error)

	mu     sync.Mutex
	timer  *time.Timer // nil: the end has come, or the watch is over
	bytes  int         // of initial events since the timer was set
	resets int         // how often the timer was set again
	isPast bool        // an event has come that is no initial one
}

// newEndMark calls onMissing unless stop is called in time.
func newEndMark(wait time.Duration, answersInTime func() bool, onMissing func(error)) *endMark {
	e := &endMark{wait: wait, answersInTime: answersInTime, onMissing: onMissing}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.timer = time.AfterFunc(wait, e.judgeDelay)
	return e
}

// judgeDelay decides whether the end that has not come is late or missing.
func (e *endMark) judgeDelay() {
	e.mu.Lock()
	resets := e.resets
	e.mu.Unlock()
	answers := e.answersInTime()
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.timer == nil, e.resets != resets: // it came meanwhile, or there was progress
	case answers:
		e.onMissing(errNoEndMark{e.wait})
	default:
		e.resetLocked()
	}
}

func (e *endMark) resetLocked() {
	e.bytes = 0
	e.resets++
	e.timer.Reset(e.wait)
}

// countEvent counts an event that came before the end.
func (e *endMark) countEvent(t watch.EventType, bytes int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.timer == nil || e.isPast {
		return
	}
	if t == watch.Modified || t == watch.Deleted {
		e.isPast = true
		return
	}
	if e.bytes += bytes; e.bytes >= progressBytes {
		e.resetLocked()
	}
}

// stop says that the end has come, or that the watch is over. Idempotent.
func (e *endMark) stop() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.timer != nil {
		e.timer.Stop()
		e.timer = nil
	}
}
