package main

import (
	"go.uber.org/zap"

	"spillway/internal/config"
	"spillway/internal/memory"
)

// budget is how much memory the process may use.
type budget struct {
	bytes int64         // 0: no limit
	limit *memory.Limit // Go's part; nil: no limit
	err   error         // why the container's limit is not known
}

// applyBudget finds out how much memory the process may use, gives the garbage collector its limit,
// and lowers the settings that follow from it and were not set.
func applyBudget(o *config.Settings) budget {
	bytes, err := memory.Budget(int64(o.MemoryBudget))
	b := budget{bytes: bytes, limit: memory.SetLimit(bytes), err: err}
	if b.bytes == 0 && b.limit != nil {
		b.bytes = b.limit.Bytes()
	}
	o.ApplyBudget(b.bytes)
	return b
}

// announce logs the budget.
func (b budget) announce(log *zap.Logger) {
	switch {
	case b.err != nil:
		log.Warn("the memory limit of this container cannot be read: set --memory-budget if it has one", zap.Error(b.err))
	case b.limit != nil:
		log.Info("memory is limited", zap.Int64("budget", b.bytes), zap.Int64("gomemlimit", b.limit.Bytes()))
	}
}
