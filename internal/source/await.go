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
	// ArrivalTimeout bounds a wait for a resourceVersion or a proof, as upstream bounds its own (W-65,
	// W-106, W-216).
	ArrivalTimeout = 3 * time.Second
	// HurriedArrivalTimeout is how long a read waits for a state that upstream has and the cache is
	// about to have, if its client may give up before it is clear that the state does not exist.
	// Upstream answers then.
	HurriedArrivalTimeout = 100 * time.Millisecond
	// VerdictTimeout bounds the question whether upstream itself has what did not arrive: upstream
	// answers the request otherwise.
	VerdictTimeout = ArrivalTimeout
	// proofInterval is the pause between two proofs: what is waited for may be a write to anything.
	proofInterval = 100 * time.Millisecond
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
	state, err := r.AwaitSnapshot(waiting, rv)
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
	newest, err := s.Fresh.UpstreamRV(ctx)
	if err != nil {
		return fmt.Errorf("%w: %v", errBehind, err)
	}
	if newest >= rv {
		return errBehind
	}
	return &TooLargeError{Asked: rv, Current: newest}
}
