package plan

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"spillway/internal/object"
	"spillway/internal/source"
)

// Action is how a request is answered.
type Action int

// The four answers (design D1).
const (
	// Upstream: it passes through, as does whatever is in doubt.
	Upstream Action = iota
	FromCache
	// FromCacheProven: from the cache once it is proven not older than the request.
	FromCacheProven
	// Refuse: with the Status that upstream would answer with.
	Refuse
)

// Plan is how one request is answered, and everything that the answer needs. Planner.Decide makes
// it. One of Get, List and Watch is set if the answer comes from memory.
type Plan struct {
	Action   Action
	Source   *source.Source
	Status   *metav1.Status // of a refusal
	Early    bool           // of a refusal: upstream has not looked at the resource yet, so it has no warning (W-23)
	Doubtful bool           // it goes upstream because the cache cannot be proven at present
	Selector object.Selector
	AnswerForm
	Get   *GetPlan
	List  *ListPlan
	Watch *WatchPlan
}

// GetPlan is a GET of one object: from any state at or above RV (W-95).
type GetPlan struct {
	Key  string
	Name string
	RV   uint64
	// Hurried: the client may give up before the cache has reached RV (W-28), and hears of that from
	// upstream.
	Hurried bool
}

// ListPlan is a LIST (W-63).
type ListPlan struct {
	RV    uint64 // at least, or exactly
	Exact bool
	Limit int64  // 0: none
	Start string // key to begin with, "" the first
	// Scanned is the range in which a page that is full looks for more: if it holds a key after the
	// last one, the list has a continue token, whether that key is selected or not (W-69).
	Scanned object.Selector
	Hurried bool // as in GetPlan
}

// WatchPlan is a WATCH (W-100).
type WatchPlan struct {
	RV        uint64
	Start     WatchStart
	Bookmarks bool
	// EndMark: a bookmark of its own kind ends the initial events. That makes the watch a watch-list
	// (W-101). Not every watch that begins with the state is one.
	EndMark bool
	// Timeout is how long the watch lasts. One that is not positive is over before it begins (W-29).
	Timeout time.Duration
}

// WatchStart is what a watch begins with (W-100).
type WatchStart int

// The starts of a watch.
const (
	StateAny         WatchStart = iota // the state, of any age
	StateAtLeast                       // the state, not older than RV
	StateConsistent                    // the state, not older than the request
	EventsFrom                         // the events above RV
	EventsFromNow                      // the events from the cache's present on
	EventsFromNewest                   // the events from upstream's present on
)

// MostRecent reports that the plan is for a LIST that must not be older than the request.
func (p Plan) MostRecent() bool { return p.List != nil && p.Action == FromCacheProven }

// ShowsState reports that the answer shows a state of any age, which gets older while upstream is
// unreachable. Events, the state at an exact version, and a state that is proven do not.
func (p Plan) ShowsState() bool {
	switch {
	case p.Get != nil:
		return true
	case p.List != nil:
		return p.Action == FromCache && !p.List.Exact
	case p.Watch != nil:
		return p.Watch.Start == StateAny || p.Watch.Start == StateAtLeast
	}
	return false
}
