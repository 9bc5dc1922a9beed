package main

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"spillway/internal/audit"
	"spillway/internal/auth"
	"spillway/internal/config"
	"spillway/internal/rotation"
	"spillway/internal/upstream"
)

// auditLog is the audit log of the process.
type auditLog struct {
	log *audit.Logger // nil: there is none
	// self is the identity under which requests that act as the proxy itself are recorded; nil until
	// begin.
	self       atomic.Pointer[auth.Identity]
	processLog *zap.Logger
}

// newAudit opens the audit log, if there is to be one.
func newAudit(o *config.Settings, registry prometheus.Registerer, log *zap.Logger) (*auditLog, error) {
	if o.AuditPolicyFile == "" {
		return &auditLog{}, nil
	}
	var policy *audit.Policy
	text, err := rotation.ReadFile(o.AuditPolicyFile)
	if err == nil {
		policy, err = audit.ParsePolicy(text)
	}
	if err != nil {
		return nil, o.Refuse("audit-policy-file", o.AuditPolicyFile, "is no audit policy: "+config.Cause(err))
	}
	out, err := audit.Open(audit.FileOptions{
		Path: o.AuditLogPath, MaxSize: o.AuditLogMaxSize, MaxAge: o.AuditLogMaxAge, MaxBackups: o.AuditLogMaxBackups,
		Compress: o.AuditLogCompress,
	})
	if err != nil {
		return nil, o.Refuse("audit-log-path", o.AuditLogPath, "cannot be written: "+config.Cause(err))
	}
	return &auditLog{processLog: log, log: audit.New(audit.Options{
		Policy: policy, Out: out, FailClosed: o.AuditFailClosed, Metrics: audit.NewMetrics(registry), Log: log,
	})}, nil
}

// close writes the events that are left, within a bound of time.
func (a *auditLog) close() {
	if a.log == nil {
		return
	}
	if err := a.log.Close(); err != nil {
		a.processLog.Warn("closing the audit log", zap.Error(err))
	}
}

// begin finds out which identity the proxy has upstream, if that is to be recorded. No request acts
// as the proxy before, because a policy may name users.
func (a *auditLog) begin(ctx context.Context, client *upstream.Client, o *config.Settings) error {
	if a.log == nil || o.ListenIdentity != config.IdentitySelf {
		return nil
	}
	user, err := client.WhoAmI(ctx)
	if err != nil {
		return fmt.Errorf("the audit log has to name the users that act as spillway itself: %w", err)
	}
	a.self.Store(auth.NewIdentity(user))
	return nil
}
