package main

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"spillway/internal/status"
	"spillway/internal/upstream"
)

// startTimeout bounds one attempt to find out from upstream what has to be known before any client
// is served.
const startTimeout = 15 * time.Second

// startup is the time until upstream has said what there is to mirror. While upstream is away, the
// process lives and is not ready, and clients are sent away to retry. A refusal ends the startup,
// too, unless upstream has only just begun (upstream.Client.Await).
type startup struct {
	trouble atomic.Pointer[error] // why it is not over; nil once it is
}

var errNotAsked = errors.New("the apiserver has not answered yet")

func newStartup() *startup {
	b := &startup{}
	b.trouble.Store(&errNotAsked)
	return b
}

// reason is why it is not over; nil once it is. What begin has done happened before reason is nil.
func (b *startup) reason() error {
	if why := b.trouble.Load(); why != nil {
		return *why
	}
	return nil
}

// ready is the check behind /readyz.
func (b *startup) ready() (string, error) { return "", b.reason() }

// await returns when begin has succeeded or never will, or when ctx ends, with its cause. missed is
// called after each attempt that found upstream away.
func (b *startup) await(ctx context.Context, client *upstream.Client, begin func(context.Context) error,
	missed func(), log *zap.Logger) error {
	since := time.Now()
	attempt := func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, startTimeout)
		defer cancel()
		return begin(ctx)
	}
	away := false
	err := client.Await(ctx, attempt, func(err error, again time.Duration) {
		away = true
		b.trouble.Store(&err)
		log.Warn("the apiserver is away: waiting for it", zap.Stringer("upstream", client.Base()),
			zap.String("error", status.OneLine(err.Error())), zap.Duration("retryAfter", again.Round(time.Millisecond)))
		missed()
	})
	if err != nil {
		return err
	}
	if away {
		log.Info("the apiserver is there", zap.Duration("after", time.Since(since).Round(time.Millisecond)))
	}
	b.trouble.Store(nil)
	return nil
}
