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
	// HurriedArrivalTimeout is ArrivalTimeout for a read whose client may give up before it is clear
	// whether the version exists. Upstream answers then.
	HurriedArrivalTimeout = 100 * time.Millisecond
	// VerdictTimeout bounds the question whether upstream has a version that did not arrive.
	VerdictTimeout = ArrivalTimeout
	// proofInterval is the pause between two proofs: the version may be that of any resource.
	proofInterval = 100 * time.Millisecond
)

// TooLargeError says that a resourceVersion exists neither here nor upstream (W-68, W-106).
type TooLargeError struct{ Requested, Current uint64 }

func (e *TooLargeError) Error() string {
	return fmt.Sprintf("Too large resource version: %d, current: %d", e.Requested, e.Current)
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
// up. If upstream does not answer within verdictTimeout, the error is errBehind.
func (s *Source) AwaitRV(ctx context.Context, rv uint64, verdictTimeout time.Duration) (*cache.Snapshot, error) {
	r := s.Resource()
	if now := r.Snapshot(); now != nil && now.RV >= rv {
		return now, nil
	}
	waiting, cancel := context.WithTimeout(ctx, ArrivalTimeout)
	defer cancel()
	var proven *cache.Snapshot
	var proving sync.WaitGroup
	proving.Go(func() {
		proven = s.proveThrough(waiting, rv)
		cancel()
	})
	state, err := r.AwaitSnapshot(waiting, rv)
	cancel()
	proving.Wait()
	switch {
	case err == nil:
		return state, nil
	case proven != nil:
		return proven, nil
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	}
	return nil, s.explainAbsence(ctx, rv, verdictTimeout)
}

// proveThrough requests proofs until one is of a state that is not older than rv; nil if ctx ends
// first.
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

// explainAbsence is why rv has not arrived. The question is the proxy's own, so an error that
// upstream answers is not for the client: only its text is kept.
func (s *Source) explainAbsence(ctx context.Context, rv uint64, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	newest, err := s.Fresh.UpstreamRV(ctx)
	if err != nil {
		return fmt.Errorf("%w: %v", errBehind, err)
	}
	if newest >= rv {
		return errBehind
	}
	return &TooLargeError{Requested: rv, Current: newest}
}
