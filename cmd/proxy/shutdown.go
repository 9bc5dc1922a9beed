package main

import (
	"cmp"
	"context"
	"errors"
	"time"

	"go.uber.org/zap"
)

// closeTimeout is how long connections may take to close after the drain.
const closeTimeout = time.Second

// shutdown drains the server, ends all that start has started, and waits for it. It returns why the
// start failed, or else why a part did.
func (p *process) shutdown(ctx context.Context, failed error) error {
	p.checks.Drain()
	p.server.Drain(p.life.stop, p.o.DrainPeriod)
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	if err := p.server.Close(closing); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		p.log.Warn("stopping", zap.Error(err))
	}
	p.life.finish()
	p.mirrors.Wait()
	if err := p.running.Wait(); failed != nil || err != nil {
		return cmp.Or(failed, err)
	}
	p.log.Info("stopped")
	return nil
}
