package main

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"spillway/internal/status"
	"spillway/internal/upstream"
	"spillway/internal/upstream/transport"
)

// attemptTimeout bounds one attempt to find out from upstream what has to be known before any
// client is served.
const attemptTimeout = 15 * time.Second

// startup is the time until upstream has said what there is to mirror. Until then the process lives
// and is not ready, and clients are answered with Retry-After. A refusal ends the startup, too,
// unless upstream may be starting itself (upstream.Client.Await).
type startup struct {
	client *upstream.Client
	log    *zap.Logger // names where the address and the credentials are from
	// pending is why it is not over; nil once it is.
	pending atomic.Pointer[error]
}

var errNoAnswer = errors.New("the API server has not answered yet")

func newStartup(client *upstream.Client, log *zap.Logger) *startup {
	s := &startup{client: client, log: log}
	s.pending.Store(&errNoAnswer)
	return s
}

// reason is why it is not over; nil once it is. Whatever await's begin did happened before reason
// is nil.
func (s *startup) reason() error {
	if why := s.pending.Load(); why != nil {
		return *why
	}
	return nil
}

// ready is the check behind /readyz.
func (s *startup) ready() (string, error) { return "", s.reason() }

// await calls begin until it succeeds, which ends the startup. It returns an error if begin never
// will succeed, or if ctx ends. It calls missed after each attempt without a result.
func (s *startup) await(ctx context.Context, begin func(context.Context) error, missed func()) error {
	began, hasMissed := time.Now(), false
	attempt := func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
		defer cancel()
		return begin(ctx)
	}
	err := s.client.Await(ctx, attempt, func(err error, again time.Duration) {
		hasMissed = true
		s.pending.Store(&err)
		s.log.Warn(waitMessage(err), zap.Stringer("upstream", s.client.Base()),
			zap.String("error", status.OneLine(err.Error())), zap.Duration("retryAfter", again.Round(time.Millisecond)))
		missed()
	})
	if err != nil {
		return err
	}
	if hasMissed {
		s.log.Info("the API server serves the proxy now", zap.Duration("after", time.Since(began).Round(time.Millisecond)))
	}
	s.pending.Store(nil)
	return nil
}

// waitMessage says what the proxy waits for after an attempt without a result.
func waitMessage(err error) string {
	var answer apierrors.APIStatus
	switch {
	case errors.As(err, new(*transport.CredentialError)):
		return "there are no credentials for the API server yet: nothing is served until there are"
	case !upstream.IsUnavailable(err):
		return "the API server refuses, and may be starting: nothing is served until it accepts the proxy"
	case errors.As(err, &answer):
		return "the API server answers that it cannot serve now: nothing is served until it can"
	}
	return "the API server is unreachable: nothing is served until it answers"
}
