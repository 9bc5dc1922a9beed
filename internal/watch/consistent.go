package watch

import (
	"context"
	"time"

	"spillway/internal/cache"
	"spillway/internal/source"
)

const (
	// initialProofTimeout is how long a stream with an end bookmark waits for the proof before it
	// sends what it has: on a busy resource the proof is there by then, and nothing has to be held
	// back (design D7).
	initialProofTimeout = 100 * time.Millisecond
)

// consistent begins a watch whose state must not be older than the request (design D7, W-215).
//
// With an end bookmark the state goes out early and the bookmark waits for the proof; what happens
// meanwhile is part of the initial events. Without one there is no mark, so the initial events
// themselves are the claim: nothing but the head is sent before the proof.
func (s *Stream) consistent() (EndReason, error) {
	ctx, cancel := context.WithTimeout(s.context(), source.ProofTimeout)
	defer cancel()
	proofs := make(chan proof, 1)
	go func() {
		state, err := s.source.Fresh.Prove(ctx)
		proofs <- proof{state, err}
	}()

	head := ctx
	if s.endMark {
		var cancelHead context.CancelFunc
		head, cancelHead = context.WithTimeout(ctx, initialProofTimeout)
		defer cancelHead()
	}
	select {
	case proven := <-proofs:
		if proven.err != nil {
			return s.reasonAfterWait(EndFreshnessTimeout), nil
		}
		if err := s.state(proven.state); err != nil {
			return "", err
		}
		return "", s.endOfState()
	case <-head.Done():
	}
	if !s.endMark {
		return s.reasonAfterWait(EndFreshnessTimeout), nil
	}
	return s.stateThenProof(proofs)
}

// proof is a state that is not older than the request, or why there is none.
type proof struct {
	state *cache.Snapshot
	err   error
}

// reasonAfterWait is why a stream ends whose wait has failed: reason, unless it has one already.
func (s *Stream) reasonAfterWait(reason EndReason) EndReason {
	if ending := s.Reason(); ending != "" {
		return ending
	}
	return reason
}

// stateThenProof sends the state, then what changes until the proof, as ADDED, and then the end
// bookmark.
func (s *Stream) stateThenProof(proofs <-chan proof) (EndReason, error) {
	if err := s.state(s.source.Resource().Snapshot()); err != nil {
		return "", err
	}
	s.cursor.BeginInitialEvents()
	ended := s.Done()
	var proven *cache.Snapshot // what the client must have; nil before the proof
	for {
		if err := s.pass(0); err != nil {
			return "", err
		}
		more := s.cursor.Wait()
		run, err := s.cursor.Next()
		if err != nil {
			return "", err
		}
		if len(run) > 0 {
			if err := s.write(run); err != nil {
				return "", err
			}
			continue
		}
		if proven != nil && !s.cursor.InSeam() {
			if s.cursor.Through() >= proven.RV {
				s.cursor.EndInitialEvents()
				return "", s.endOfState()
			}
			// A proof by comparison (design D7, step 4) shows that the mirror holds upstream's
			// state at proven.RV, but does not move the log there, and nothing else has to. If the
			// client has what it may see of that state, the watch goes on from the state.
			if landed := s.cursor.RebaseOn(proven); landed != nil {
				s.cursor.Close()
				s.cursor = landed
				return "", s.endOfState()
			}
		}
		select {
		case <-more:
		case p := <-proofs:
			if p.err != nil {
				return s.reasonAfterWait(EndFreshnessTimeout), nil
			}
			proven = p.state
		case <-ended:
			return s.Reason(), nil
		}
	}
}
