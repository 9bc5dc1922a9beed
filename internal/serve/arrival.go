package serve

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
	// proofWait bounds a wait for a proof. A request that arrives while an older proof is under way waits
	// for the end of that, which proves nothing to it, and then for its own: three seconds each.
	proofWait = 2 * arriveWait
	// arriveWait bounds a wait for a resourceVersion, as upstream bounds its own, however short the watch is to be (W-65, W-106).
	arriveWait = 3 * time.Second
	// arriveAgain is how long after one proof the next is asked for: what is waited for may be anybody's write to anything.
	arriveAgain = 100 * time.Millisecond
	// arrivalWait is how long a read waits for a state that upstream has and the cache is about to have, if the client may not
	// have the time to hear that the state does not exist: then upstream answers.
	arrivalWait = 100 * time.Millisecond
	// verdictWait bounds the question whether upstream itself has what did not arrive, if upstream answers where nobody knows.
	verdictWait = arriveWait
	// verdictPatience bounds it for a watch, whose head is sent, so that nobody else can answer. The question waits for the end
	// of one that is under way, and then for that of its own, as proofs do.
	verdictPatience = proofWait
	// arriveRounds is how often a watch waits for what neither arrives nor is known to be too large.
	arriveRounds = 2
)

// tooLargeError says that a resourceVersion exists neither here nor upstream (W-68, W-106).
type tooLargeError struct{ asked, current uint64 }

func (e *tooLargeError) Error() string {
	return fmt.Sprintf("Too large resource version: %d, current: %d", e.asked, e.current)
}

// Status implements apierrors.APIStatus.
func (e *tooLargeError) Status() metav1.Status {
	return *apistatus.New(http.StatusGatewayTimeout, metav1.StatusReasonTimeout, "Timeout: "+e.Error(), &metav1.StatusDetails{
		Causes:            []metav1.StatusCause{{Type: metav1.CauseTypeResourceVersionTooLarge, Message: "Too large resource version"}},
		RetryAfterSeconds: 1,
	})
}

// errBehind says that upstream has a resourceVersion that has not arrived here, or may have it.
var errBehind = errors.New("the cache is behind upstream")

// arrive is a state that is not older than rv. It waits for it as long as upstream would, and at most until ctx ends. A quiet
// resource hears of a resourceVersion only if it asks, so this asks for proofs meanwhile. That rv is too large is a
// tooLargeError, and upstream's own word: it is asked when the time is up. If it does not say so within verdict, that is
// errBehind.
func (s *Source) arrive(ctx context.Context, rv uint64, verdict time.Duration) (*cache.Snapshot, error) {
	r := s.Resource()
	if now := r.Snapshot(); now != nil && now.RV >= rv {
		return now, nil
	}
	waiting, cancel := context.WithTimeout(ctx, arriveWait)
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

// arriveInWatch is arrive for a watch. Where it is not known why rv does not arrive, as with an upstream that is too busy to say,
// a client that has its head is better kept than sent away to ask the same again; but not for ever.
func (s *Source) arriveInWatch(ctx context.Context, rv uint64) (state *cache.Snapshot, err error) {
	for range arriveRounds {
		state, err = s.arrive(ctx, rv, verdictPatience)
		if !errors.Is(err, errBehind) {
			break
		}
	}
	return state, err
}

// proveThrough asks for one proof after the other until one is of a state that is not older than rv; nil if ctx ends first.
func (s *Source) proveThrough(ctx context.Context, rv uint64) *cache.Snapshot {
	for ctx.Err() == nil {
		if state, err := s.Fresh.Prove(ctx); err == nil && state.RV >= rv {
			return state
		}
		select {
		case <-time.After(arriveAgain):
		case <-ctx.Done():
		}
	}
	return nil
}

// verdict is why rv has not arrived. What upstream says to the question, which was the proxy's own, is not for the client: of its error only
// the text stays.
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
	return &tooLargeError{asked: rv, current: newest}
}
