package config

import (
	"fmt"

	"github.com/spf13/pflag"

	"spillway/internal/audit"
	"spillway/internal/rotation"
)

// AuditOptions are the flags of the audit log, which are named as kube-apiserver's where they mean
// the same.
type AuditOptions struct {
	PolicyFile string // with To.Path, or both empty: there is no audit log
	To         audit.FileOptions
	FailClosed bool
	Policy     *audit.Policy // what PolicyFile says, made by Validate
}

// newAuditOptions has kube-apiserver's defaults.
func newAuditOptions() AuditOptions {
	return AuditOptions{To: audit.FileOptions{MaxSize: 100, MaxAge: 366, MaxBackups: 100}}
}

func (a *AuditOptions) flags(fs *pflag.FlagSet) {
	fs.StringVar(&a.PolicyFile, "audit-policy-file", a.PolicyFile,
		"Put requests that are answered from memory on record as the policy in this `file` says (audit.k8s.io/v1 "+
			"Policy), which may be that of the API server. What is passed through is on the API server's own record. When "+
			"empty, there is no audit log.")
	fs.StringVar(&a.To.Path, "audit-log-path", a.To.Path,
		"Write audit events to this `file`, one JSON document a line, as the API server does. - is standard output.")
	fs.IntVar(&a.To.MaxSize, "audit-log-maxsize", a.To.MaxSize,
		"Rotate the audit log when it has this `number` of megabytes. 0 never does.")
	fs.IntVar(&a.To.MaxAge, "audit-log-maxage", a.To.MaxAge,
		"Keep rotated audit logs for this `number` of days. 0 keeps them however old they are.")
	fs.IntVar(&a.To.MaxBackups, "audit-log-maxbackup", a.To.MaxBackups,
		"Keep at most this `number` of rotated audit logs. 0 keeps any number.")
	fs.BoolVar(&a.To.Compress, "audit-log-compress", a.To.Compress, "Compress rotated audit logs with gzip.")
	fs.BoolVar(&a.FailClosed, "audit-fail-closed", a.FailClosed,
		"Answer nothing from memory whose audit events could not be written within a second: it is passed through, so "+
			"that the API server puts it on its record. Otherwise it is answered all the same. What blocks is then given "+
			"its events later, at most 16 MiB and, of watches that have ended, 64 MiB; more than that is lost and counted.")
}

// validateAudit refuses a log without a policy, a policy without a log, and policies that
// kube-apiserver would refuse.
func (o *Settings) validateAudit() error {
	a := &o.Audit
	for _, n := range []struct {
		flag  string
		value int
	}{{"audit-log-maxsize", a.To.MaxSize}, {"audit-log-maxage", a.To.MaxAge}, {"audit-log-maxbackup", a.To.MaxBackups}} {
		if n.value < 0 {
			return o.Refuse(n.flag, fmt.Sprint(n.value), "must not be negative; 0 sets no limit")
		}
	}
	switch {
	case a.PolicyFile == "" && a.To.Path == "":
		if a.FailClosed {
			return o.Refuse("audit-fail-closed", "true", "has a meaning only with --audit-policy-file")
		}
		return nil
	case a.PolicyFile == "":
		return o.Refuse("audit-log-path", a.To.Path, "needs --audit-policy-file, which says what is put on record")
	case a.To.Path == "":
		return o.Refuse("audit-policy-file", a.PolicyFile, "needs --audit-log-path; - is standard output")
	}
	text, err := rotation.ReadFile(a.PolicyFile)
	if err != nil {
		return o.Refuse("audit-policy-file", a.PolicyFile, "cannot be read: "+Cause(err))
	}
	if a.Policy, err = audit.ParsePolicy(text); err != nil {
		return o.Refuse("audit-policy-file", a.PolicyFile, "is no audit policy: "+err.Error())
	}
	return nil
}
