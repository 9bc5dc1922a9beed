package main

import (
	"go.uber.org/zap"

	"spillway/internal/config"
	"spillway/internal/memory"
)

// budget is what the process may use.
type budget struct {
	bytes int64         // 0: as much as it likes
	limit *memory.Limit // of what Go uses; nil: there is none
	err   error         // why it is not known
}

// applyBudget finds out what the process may use, gives the garbage collector its limit, and lowers
// the limits that follow from it and were not set.
func applyBudget(o *config.Settings) budget {
	bytes, err := memory.Budget(int64(o.MemoryBudget))
	b := budget{bytes: bytes, limit: memory.NewLimit(bytes), err: err}
	if b.bytes == 0 && b.limit != nil {
		b.bytes = b.limit.Bytes()
	}
	o.Divide(b.bytes)
	return b
}

// announce says what the process may use.
func (b budget) announce(log *zap.Logger) {
	switch {
	case b.err != nil:
		log.Warn("the memory limit of this container cannot be read: set --memory-budget if it has one", zap.Error(b.err))
	case b.limit != nil:
		log.Info("memory is limited", zap.Int64("budget", b.bytes), zap.Int64("gomemlimit", b.limit.Bytes()))
	}
}
