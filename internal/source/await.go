package source

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"spillway/internal/apistatus"
	"spillway/internal/cache"
)

const (
	// ArrivalTimeout bounds a wait for a resourceVersion, as upstream bounds its own, however short
	// the watch is to be (W-65, W-106).
	ArrivalTimeout = 3 * time.Second
	// ProofTimeout bounds a wait for a proof. A request that arrives while an older proof is under way
	// waits for the end of that, which proves nothing to it, and then for its own: three seconds each.
	ProofTimeout = 2 * ArrivalTimeout
	// HurriedArrivalTimeout is how long a read waits for a state that upstream has and the cache is
	// about to have, if its client may give up before it is clear that the state does not exist.
	// Upstream answers then.
	HurriedArrivalTimeout = 100 * time.Millisecond
	// VerdictTimeout bounds the question whether upstream itself has what did not arrive, if upstream
	// can answer the request otherwise.
	VerdictTimeout = ArrivalTimeout
	// watchVerdictTimeout bounds it for a watch whose head is sent, so that upstream cannot answer it.
	// The question waits for the end of an older one, and then for its own answer, as proofs do.
	watchVerdictTimeout = ProofTimeout
	// proofInterval is the pause between two proofs: what is waited for may be a write to anything.
	proofInterval = 100 * time.Millisecond
	// watchRounds is how often a watch waits for what neither arrives nor is known to be too large.
	watchRounds = 2
)

// TooLargeError says that a resourceVersion exists neither here nor upstream (W-68, W-106).
type TooLargeError struct{ Asked, Current uint64 }

func (e *TooLargeError) Error() string {
	return fmt.Sprintf("Too large resource version: %d, current: %d", e.Asked, e.Current)
}

// Status implements apierrors.APIStatus.
func (e *TooLargeError) Status() metav1.Status {
	cause := metav1.StatusCause{Type: metav1.CauseTypeResourceVersionTooLarge, Message: "Too large resource version"}
	return *apistatus.New(http.StatusGatewayTimeout, metav1.StatusReasonTimeout, "Timeout: "+e.Error(),
		&metav1.StatusDetails{Causes: []metav1.StatusCause{cause}, RetryAfterSeconds: 1})
}

// errBehind says that upstream has, or may have, a resourceVersion that has not arrived here.
var errBehind = errors.New("the cache is behind upstream")

// AwaitRV returns a state that is not older than rv. It waits for it as long as upstream would, and
// at most until ctx ends. A quiet resource learns of a resourceVersion only by a proof, so AwaitRV
// requests proofs meanwhile. A TooLargeError is upstream's own answer, requested when the time is
// up. If upstream does not answer within verdict, the error is errBehind.
func (s *Source) AwaitRV(ctx context.Context, rv uint64, verdict time.Duration) (*cache.Snapshot, error) {
	r := s.Resource()
	if now := r.Snapshot(); now != nil && now.RV >= rv {
		return now, nil
	}
	waiting, cancel := context.WithTimeout(ctx, ArrivalTimeout)
	defer cancel()
	var proven *cache.Snapshot
	var asking sync.WaitGroup
	asking.Go(func() {
		proven = s.proveThrough(waiting, rv)
		cancel()
	})
	state, err := r.StateThrough(waiting, rv)
	cancel()
	asking.Wait()
	switch {
	case err == nil:
		return state, nil
	case proven != nil:
		return proven, nil
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	}
	return nil, s.verdict(ctx, rv, verdict)
}

// AwaitRVInWatch is AwaitRV for a watch. Where it is not known why rv does not arrive, as with an
// upstream that is too busy to answer, a client that has its head is kept, but not for ever: sent
// away, it would ask the same again.
func (s *Source) AwaitRVInWatch(ctx context.Context, rv uint64) (state *cache.Snapshot, err error) {
	for range watchRounds {
		state, err = s.AwaitRV(ctx, rv, watchVerdictTimeout)
		if !errors.Is(err, errBehind) {
			break
		}
	}
	return state, err
}

// proveThrough asks for one proof after another until one is of a state that is not older than rv;
// nil if ctx ends first.
func (s *Source) proveThrough(ctx context.Context, rv uint64) *cache.Snapshot {
	for ctx.Err() == nil {
		if state, err := s.Fresh.Prove(ctx); err == nil && state.RV >= rv {
			return state
		}
		select {
		case <-time.After(proofInterval):
		case <-ctx.Done():
		}
	}
	return nil
}

// verdict is why rv has not arrived. What upstream answers to the question, which was the proxy's
// own, is not for the client: of its error only the text stays.
func (s *Source) verdict(ctx context.Context, rv uint64, within time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	newest, err := s.Fresh.Newest(ctx)
	if err != nil {
		return fmt.Errorf("%w: %v", errBehind, err)
	}
	if newest >= rv {
		return errBehind
	}
	return &TooLargeError{Asked: rv, Current: newest}
}
