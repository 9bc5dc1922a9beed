package webhook

import (
	"context"
	"time"

	"go.uber.org/zap"

	"spillway/internal/memory"
)

const (
	// budgetBytes is the most memory that the webhook uses, whatever the container's limit: package
	// admission bounds what it holds of reviews. The rules come on top.
	budgetBytes = 88 << 20
	// ruleBytes is what a LimitRange or a ResourceQuota takes: 3,180 as measured.
	ruleBytes = 4 << 10
	// fitInterval is how often the limit is fitted to the number of rules.
	fitInterval = 10 * time.Second
)

// memoryLimit is the garbage collector's limit: budgetBytes and the bytes of the rules in memory,
// or the container's limit if that is less. The rules may be known late, and become more at any
// time: a limit that is too low for them keeps the collector busy.
type memoryLimit struct {
	containerBytes int64      // the container's limit; 0: it has none
	countRules     func() int // LimitRanges and ResourceQuotas in memory
	fittedTo       int        // rules
}

func newMemoryLimit(countRules func() int, log *zap.Logger) *memoryLimit {
	container, err := memory.Budget(0)
	if err != nil {
		log.Warn("the memory limit of this container cannot be read", zap.Error(err))
	}
	return &memoryLimit{containerBytes: container, countRules: countRules}
}

// fit sets the limit. It returns Go's part of it; 0: the environment allows any.
func (l *memoryLimit) fit() int64 {
	l.fittedTo = l.countRules()
	bytes := budgetBytes + int64(l.fittedTo)*ruleBytes
	if l.containerBytes > 0 {
		bytes = min(bytes, l.containerBytes)
	}
	limit := memory.SetLimit(bytes)
	if limit == nil {
		return 0
	}
	return limit.Bytes()
}

// follow fits the limit again whenever the number of rules has changed, until ctx ends.
func (l *memoryLimit) follow(ctx context.Context) {
	ticks := time.NewTicker(fitInterval)
	defer ticks.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticks.C:
		}
		if l.countRules() != l.fittedTo {
			l.fit()
		}
	}
}
