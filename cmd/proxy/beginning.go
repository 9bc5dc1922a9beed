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

// startTimeout bounds one attempt to find out what has to be known of upstream before anybody is served.
const startTimeout = 15 * time.Second

// beginning is the time until upstream has said what there is to mirror. Whoever starts while upstream is away waits for it as everybody else
// does: the process lives and is not ready, clients are told to come back, and it is over when upstream answers. An upstream that does answer
// ends it one way or the other, since what it refuses is the configuration.
type beginning struct {
	trouble atomic.Pointer[error] // why it is not over; nil once it is
}

var errNotAsked = errors.New("the apiserver has not answered yet")

func newBeginning() *beginning {
	b := &beginning{}
	b.trouble.Store(&errNotAsked)
	return b
}

// reason is why it is not over; nil once it is. All that begin has done is seen by who is told nil.
func (b *beginning) reason() error {
	if why := b.trouble.Load(); why != nil {
		return *why
	}
	return nil
}

// ready is the check behind /readyz.
func (b *beginning) ready() (string, error) { return "", b.reason() }

// await returns when begin has succeeded or never will, or when ctx ends, with its cause. missed is called after each attempt that found upstream
// away.
func (b *beginning) await(ctx context.Context, client *upstream.Client, begin func(context.Context) error, missed func(), log *zap.Logger) error {
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
		log.Warn("the apiserver is away: waiting for it", zap.Stringer("upstream", client.Base()), zap.String("error", status.OneLine(err.Error())),
			zap.Duration("again", again.Round(time.Millisecond)))
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
