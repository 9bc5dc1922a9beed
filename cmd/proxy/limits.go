package main

import (
	"go.uber.org/zap"

	"spillway/internal/config"
	"spillway/internal/flowcontrol"
)

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

// announceLimits logs every limit of clients: those that were set, and those that follow from the
// budget. One that a flag sets has the flag's name.
func announceLimits(l flowcontrol.Limits, o *config.Settings, log *zap.Logger) {
	log.Info("limits; 0 is none",
		zap.Int("max-connections", o.Connections()), zap.Int("max-connections-per-peer", o.MaxConnectionsPerPeer),
		zap.Int("max-watches", l.Watches), zap.Int("max-watches-per-user", l.WatchesPerUser),
		zap.Int("watchesReserve", l.WatchesReserve),
		zap.Int64("max-list-bytes-in-flight", l.ListBytes), zap.Int64("bodyBytes", l.BodyBytes),
		zap.Int("selectorTerms", l.SelectorTerms), zap.Int("max-selector-terms-per-user", l.SelectorTermsPerUser),
		zap.Int64("max-large-header-bytes", l.HeaderBytes),
		zap.Int("max-passthrough-requests", l.PassThrough),
		zap.Int("max-passthrough-requests-per-user", l.PassThroughPerUser),
		zap.Float64("max-passthrough-qps-per-user", l.PassThroughQPS),
		zap.Int("max-passthrough-burst-per-user", l.PassThroughBurst))
}
