package main

import (
	"go.uber.org/zap"

	"spillway/internal/config"
	"spillway/internal/flowcontrol"
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

// serverLimits are the settings as flowcontrol has them.
func serverLimits(l config.LimitOptions) flowcontrol.Limits {
	return flowcontrol.Limits{
		Watches: l.Watches, WatchesPerUser: l.WatchesPerUser, WatchesReserve: l.WatchesReserve,
		ListBytes: int64(l.ListBytes), BodyBytes: l.BodyBytes,
		SelectorTerms: l.AllSelectorTerms(), SelectorTermsPerUser: l.SelectorTermsPerUser,
		HeaderBytes: int64(l.HeaderBytes),
		PassThrough: l.PassThrough, PassThroughPerUser: l.PassThroughPerUser,
		PassThroughQPS: l.QPSPerUser, PassThroughBurst: l.Burst(),
	}
}

// announceLimits logs the limits: those that were set, and those that follow from the budget.
func announceLimits(s flowcontrol.Limits, connections int, log *zap.Logger) {
	log.Info("limits; 0 is none",
		zap.Int("max-watches", s.Watches), zap.Int("max-watches-per-user", s.WatchesPerUser),
		zap.Int("watchesReserve", s.WatchesReserve),
		zap.Int64("max-list-bytes-in-flight", s.ListBytes), zap.Int("max-selector-terms-per-user", s.SelectorTermsPerUser),
		zap.Int64("max-large-header-bytes", s.HeaderBytes),
		zap.Int("max-passthrough-requests", s.PassThrough),
		zap.Int("max-passthrough-requests-per-user", s.PassThroughPerUser),
		zap.Float64("max-passthrough-qps-per-user", s.PassThroughQPS), zap.Int("max-connections", connections))
}
