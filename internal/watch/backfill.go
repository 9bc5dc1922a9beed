package watch

import (
	"context"
	"errors"
	"net/http"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"spillway/internal/apistatus"
	"spillway/internal/backfill"
	"spillway/internal/cache"
	"spillway/internal/source"
)

const (
	// backfillTurnTimeout is how long a watch may wait, before its head, for its turn to get events
	// from before the log begins.
	backfillTurnTimeout = 3 * time.Second
	// backfillRetrySeconds is the Retry-After of a watch whose turn did not come, in seconds: a
	// turn takes one or two.
	backfillRetrySeconds = 2
)

// joinBackfill waits for the turn of a watch that resumes from before the log begins (design D6).
// An error other than backfill.ErrBusy shows once its place in history is fixed.
func (s *Stream) joinBackfill(ctx context.Context) error {
	var err error
	if past := s.source.Past; past != nil {
		turn, cancel := context.WithTimeout(ctx, backfillTurnTimeout)
		defer cancel()
		s.backfill, err = past.Join(turn, s.owner, s.fromRV, s.selector())
	}
	if errors.Is(err, backfill.ErrBusy) {
		if ctx.Err() == nil { // else the client left, or the proxy stops
			s.manager.opts.Metrics.backfillFailures.WithLabelValues(s.resource(), string(backfillBusy)).Inc()
		}
		return err
	}
	if s.backfill == nil {
		s.learnUpstreamRV(ctx)
	}
	return nil
}

// learnUpstreamRV asks upstream for its current resourceVersion, if the stream resumes ahead of a
// history that upstream has rewritten. Without it a client that has its resourceVersion from
// upstream would list again and again, until an event of this resource arrives.
func (s *Stream) learnUpstreamRV(ctx context.Context) {
	var expired *cache.ExpiredError
	if _, err := s.source.Resource().Log().Find(s.fromRV); !errors.As(err, &expired) || !expired.IsFutureRV() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, source.ArrivalTimeout)
	defer cancel()
	_, _ = s.source.Fresh.UpstreamRV(ctx) // the log then has what there is to know
}

// statusBackfillBusy is the answer to a resume that cannot be served now, but soon.
func statusBackfillBusy() *metav1.Status {
	return apistatus.New(http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests,
		"too many watches resume from before this proxy's history begins",
		&metav1.StatusDetails{RetryAfterSeconds: backfillRetrySeconds})
}

// deliverBackfill calls sendBackfill, and counts how that ends.
func (s *Stream) deliverBackfill() error {
	past := s.backfill
	s.backfill = nil // a live stream holds no backfill
	defer past.Close()
	err := s.sendBackfill(past)
	if err == nil {
		s.manager.opts.Metrics.backfills.WithLabelValues(s.resource()).Inc()
	} else if reason := backfillFailureOf(err); reason != "" {
		s.manager.opts.Metrics.backfillFailures.WithLabelValues(s.resource(), string(reason)).Inc()
	}
	return err
}

// sendBackfill sends the events from before the log begins, and places the cursor at its beginning.
// While upstream does not answer, the stream is silent, as one from a future resourceVersion is.
func (s *Stream) sendBackfill(past *backfill.Backfill) error {
	ctx, cancel := s.untilDeadline()
	defer cancel()
	for {
		run, cursor, err := past.Next(ctx, s.encoding)
		switch {
		case err != nil:
			return err
		case cursor != nil:
			s.cursor = cursor
			return nil
		}
		if err := s.awaitPermission(0); err != nil {
			return err
		}
		if err := s.write(run); err != nil {
			return err
		}
	}
}

// isOvertaken reports that the stream began at a future resourceVersion, and a gap in history has
// passed it. Upstream may know what is in the gap, so the client should send its request again.
func (s *Stream) isOvertaken(err error) bool {
	var expired *cache.ExpiredError
	return s.source.Past != nil && s.cursor != nil && s.cursor.IsFutureRV() &&
		errors.As(err, &expired) && expired.IsGap()
}

// backfillFailure is why a backfill failed.
type backfillFailure string

const (
	backfillExpired backfillFailure = "resource_version_expired" // upstream does not remember either: 410
	backfillBusy    backfillFailure = "concurrency_limit"        // it was not its turn in time: 429, or a clean end
	backfillBehind  backfillFailure = "slow_client"              // it did not keep up: a clean end
)

// backfillFailures are all of them, so that each is a metric from the start.
var backfillFailures = []backfillFailure{backfillExpired, backfillBusy, backfillBehind}

// backfillFailureOf is empty if the client's watch ended for a reason of its own.
func backfillFailureOf(err error) backfillFailure {
	switch {
	case errors.As(err, new(*cache.ExpiredError)):
		return backfillExpired
	case errors.Is(err, backfill.ErrBusy):
		return backfillBusy
	case errors.Is(err, backfill.ErrBehind):
		return backfillBehind
	}
	return ""
}
