package serve

import (
	"fmt"
	"net/http"
	"runtime"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"spillway/internal/fairness"
	"spillway/internal/fanout"
	"spillway/internal/object"
)

// selections bound what the label and field selectors of running watches weigh (see
// object.Selector.Weight), in all and of each user, and keep each selector of a user's once.
//
// Equal selectors of one user, in one encoding, share a feed and its evaluation, so they are
// counted once. What is beyond the bound is refused, and not passed through: upstream evaluates
// selectors in every event's path, too, and has no bound of its own.
type selections struct {
	limit *limit

	mu struct {
		sync.Mutex
		claims map[claimKey]*claim
		bytes  int64 // of selectors, in memory
		heavy  int   // of them, those that are not light
	}
}

// claimKey is what makes selectors one claim: they have one feed.
type claimKey struct {
	flow     fairness.Flow
	source   *Source
	selector string
	encoding object.Encoding
}

// claim is one selector of a user's, and how many watches have it.
type claim struct {
	key      claimKey
	selector object.Selector
	pass     fairness.Pass
	watches  int
}

// claimed is a watch's part in a claim. The zero claimed is none.
type claimed struct{ claim *claim } // guarded by selections.mu

// freeWeight is up to which weight a selector is not counted: it takes no more memory than the watch itself, which is.
const freeWeight = 16

// newSelections counts by a limit.
func newSelections(l *limit) *selections {
	s := &selections{limit: l}
	s.mu.claims = map[claimKey]*claim{}
	return s
}

// choose counts the selector of a stream of the flow's, and has the stream use the one that equal ones use.
func (l *Limiter) choose(flow fairness.Flow, st *stream) *fairness.Refusal {
	if l == nil || st.plan.Selector.Weight() <= freeWeight {
		return nil
	}
	s, sel := l.selectors, st.plan.Selector
	key := claimKey{flow: flow, source: st.plan.Source, selector: sel.Key(), encoding: st.plan.Encoding}
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.mu.claims[key]
	if c == nil {
		pass, refusal := s.limit.admit(nil, flow, int64(sel.Weight()))
		if refusal != nil {
			return refusal
		}
		c = &claim{key: key, selector: sel, pass: pass}
		s.mu.claims[key] = c
		s.countLocked(sel, 1)
	}
	c.watches++
	st.selected.claim, st.plan.Selector = c, c.selector
	return nil
}

// unchoose gives a stream's part back. Idempotent.
func (l *Limiter) unchoose(st *stream) {
	if l == nil {
		return
	}
	s := l.selectors
	s.mu.Lock()
	defer s.mu.Unlock()
	c := st.selected.claim
	if c == nil {
		return
	}
	st.selected.claim = nil
	if c.watches--; c.watches == 0 {
		delete(s.mu.claims, c.key)
		s.countLocked(c.selector, -1)
		c.pass.Release()
	}
}

func (s *selections) countLocked(sel object.Selector, sign int) {
	s.mu.bytes += int64(sign * sel.Size())
	if !sel.Light() {
		s.mu.heavy += sign
	}
}

// load is how many bytes selectors take, and how many are heavy.
func (s *selections) load() (bytes int64, heavy int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.bytes, s.mu.heavy
}

// statusSelectors is the answer to a watch whose selector would make its user's too many.
func statusSelectors(sel object.Selector, most int64, retryAfter int) *metav1.Status {
	message := fmt.Sprintf("the selectors of this user's watches would have more than %d terms with this one, which counts %d: "+
		"select less in each, let watches share a selector, or have --max-selector-terms-per-user raised", most, sel.Weight())
	return newStatus(http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests, message,
		&metav1.StatusDetails{RetryAfterSeconds: int32(retryAfter)}) // #nosec G115 -- some seconds
}

// refuseSelector answers a watch whose selector is too much.
func (s *Server) refuseSelector(c call, st *stream, r *fairness.Refusal) {
	l := s.opts.Limiter
	if l.closed() {
		writeLimited(c, st.plan.Failure, true, r.RetryAfter)
		return
	}
	writeFailure(c, st.plan.Failure, statusSelectors(st.plan.Selector, l.selectors.limit.gate.Share(),
		int(r.RetryAfter/time.Second)))
}

// ownerOf is the user that the hub counts a watch for.
func ownerOf(flow fairness.Flow) fanout.Owner {
	if flow.User != "" {
		return fanout.Owner("user " + flow.User)
	}
	return fanout.Owner("address " + flow.Addr.String())
}

// readers bound how many long queries are read at the same time: a selector of a megabyte keeps a
// processor busy for a tenth of a second, and is read before it is known whether it is too much.
type readers chan struct{}

// longQuery is how many bytes of query are long.
const longQuery = 16 << 10

func newReaders() readers { return make(readers, max(1, runtime.GOMAXPROCS(0)/2)) }

// read calls f, in its turn if the query is long.
func (r readers) read(query string, f func()) {
	if len(query) > longQuery {
		r <- struct{}{}
		defer func() { <-r }()
	}
	f()
}
