package main

import (
	"go.uber.org/zap"

	"spillway/internal/config"
	"spillway/internal/flowcontrol"
)

// serverLimits are the limits as the server wants them.
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
