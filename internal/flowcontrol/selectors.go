package flowcontrol

import (
	"sync"

	"spillway/internal/object"
)

// FreeSelectorWeight is the greatest weight of a selector that is not counted. Such a selector
// takes no more memory than its watch, and watches are counted.
const FreeSelectorWeight = 16

// selections bound what the label and field selectors of running watches weigh (see
// object.Selector.Weight), in all and of each user, and keep each selector of a user's once.
//
// Equal selectors of one user, in one encoding, share a feed and its evaluation, so they are
// counted once. A watch beyond the bound is refused, and not passed through: upstream evaluates
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
	flow     Flow
	source   any // of the resource, by identity
	selector string
	encoding object.Encoding
}

// claim is one selector of a user's, and how many watches have it.
type claim struct {
	key      claimKey
	selector object.Selector
	permit   Permit
	watches  int
}

// SelectorClaim is a watch's part in a claim; the zero SelectorClaim is none.
type SelectorClaim struct {
	claim *claim // guarded by selections.mu
}

// newSelections counts by a limit.
func newSelections(l *limit) *selections {
	s := &selections{limit: l}
	s.mu.claims = map[claimKey]*claim{}
	return s
}

// ClaimSelector counts the selector of a watch of the flow's, and sets the watch's part in the
// claim. It returns the selector that the watch is to use, the same one for equal claims. The
// source identifies the resource.
func (l *Limiter) ClaimSelector(part *SelectorClaim, flow Flow, source any, sel object.Selector, e object.Encoding) (
	object.Selector, *Refusal,
) {
	if l == nil || sel.Weight() <= FreeSelectorWeight {
		return sel, nil
	}
	s := l.selectors
	key := claimKey{flow: flow, source: source, selector: sel.Key(), encoding: e}
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.mu.claims[key]
	if c == nil {
		permit, refusal := s.limit.admit(nil, flow, int64(sel.Weight()))
		if refusal != nil {
			return sel, refusal
		}
		c = &claim{key: key, selector: sel, permit: permit}
		s.mu.claims[key] = c
		s.countLocked(sel, 1)
	}
	c.watches++
	part.claim = c
	return c.selector, nil
}

// ReleaseSelector gives a watch's part back. Idempotent.
func (l *Limiter) ReleaseSelector(part *SelectorClaim) {
	if l == nil {
		return
	}
	s := l.selectors
	s.mu.Lock()
	defer s.mu.Unlock()
	c := part.claim
	if c == nil {
		return
	}
	part.claim = nil
	if c.watches--; c.watches == 0 {
		delete(s.mu.claims, c.key)
		s.countLocked(c.selector, -1)
		c.permit.Release()
	}
}

// SelectorShare is the weight that the selectors of one user may have.
func (l *Limiter) SelectorShare() int64 { return l.selectors.limit.gate.Share() }

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
