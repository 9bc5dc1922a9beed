package main

import (
	"cmp"
	"context"
	"errors"
	"time"

	"go.uber.org/zap"
)

// closeTimeout is for connections that are still open after the drain.
const closeTimeout = time.Second

// shutdown drains the server, ends all that start has started, and waits for it. refused is why the
// start failed, if it did.
func (p *process) shutdown(ctx context.Context, refused error) error {
	p.checks.Drain()
	p.server.Drain(p.life.stop, p.o.DrainPeriod)
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	if err := p.server.Close(closing); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		p.log.Warn("stopping", zap.Error(err))
	}
	p.life.finish()
	p.mirrors.Wait()
	if err := p.running.Wait(); refused != nil || err != nil {
		return cmp.Or(refused, err)
	}
	p.log.Info("stopped")
	return nil
}
