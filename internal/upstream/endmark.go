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
	// current, which takes it 3 s at most (W-65). Progress is endMarkBytes.
	endMarkTimeout = 10 * time.Second
	endMarkBytes   = 64 << 10
	// promptAnswerTimeout is how long upstream may take to answer another question so that the end of
	// a watch-list is missing, and not late.
	promptAnswerTimeout = time.Second
	// unendedLimit is how many watch-lists in a row may end cleanly without that bookmark before a
	// LIST takes their place: an apiserver that restarts ends one.
	unendedLimit = 2
	// watchListHeadTimeout is how long the head of a watch-list may take, before a LIST is tried,
	// which has headTimeout.
	watchListHeadTimeout = 20 * time.Second
	// listFallbackPeriod is for how long a mirror lists where a watch-list has not ended before it
	// tries another one. A trial costs endMarkTimeout.
	listFallbackPeriod = time.Hour
)

// errNoEnd says that a watch-list ended before it was complete.
var errNoEnd = errors.New("the watch-list ended before its initial events did")

// errNoEndMark says that a watch-list has not ended its initial events. What stands between may
// drop bookmarks.
type errNoEndMark struct{ wait time.Duration }

func (e errNoEndMark) Error() string {
	return fmt.Sprintf("the watch-list did not end its initial events: no bookmark and no progress for %s; a proxy "+
		"in front of the apiserver may drop bookmarks", e.wait)
}

// endMark ends a watch-list whose initial events do not end, although upstream answers another
// question in time: one that is slow has not said that it sends no bookmark. Initial events are
// ADDED, so any other event comes after them and is no progress. A busy resource would otherwise
// have a watch-list look alive without end.
type endMark struct {
	wait          time.Duration
	answersInTime func() bool // upstream does, in time
	onLate        func(error)

	mu     sync.Mutex
	timer  *time.Timer // nil once the end was seen
	bytes  int         // of initial events since the timer was set
	resets int         // how often the timer was set again
	isPast bool        // an event came that is no initial one
}

// newEndMark calls late unless the end comes.
func newEndMark(wait time.Duration, answers func() bool, late func(error)) *endMark {
	e := &endMark{wait: wait, answersInTime: answers, onLate: late}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.timer = time.AfterFunc(wait, e.judgeDelay)
	return e
}

// judgeDelay decides whose fault it is that the end has not come.
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
		e.onLate(errNoEndMark{e.wait})
	default:
		e.resetLocked()
	}
}

func (e *endMark) resetLocked() {
	e.bytes = 0
	e.resets++
	e.timer.Reset(e.wait)
}

// countEvent hears of an event before the end. Callers need no lock.
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
	if e.bytes += bytes; e.bytes >= endMarkBytes {
		e.resetLocked()
	}
}

// stop forgets about it. Idempotent.
func (e *endMark) stop() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.timer != nil {
		e.timer.Stop()
		e.timer = nil
	}
}
