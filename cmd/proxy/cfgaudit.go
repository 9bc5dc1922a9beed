package main

import (
	"fmt"
	"os"

	"github.com/spf13/pflag"

	"spillway/internal/audit"
)

// auditOptions are the flags of the audit log, which are named as kube-apiserver's where they mean the same.
type auditOptions struct {
	policyFile string // with to.Path, or both empty: there is no audit log
	to         audit.FileOptions
	required   bool
	policy     *audit.Policy // what policyFile says, made by validate
}

// newAuditOptions has kube-apiserver's defaults.
func newAuditOptions() auditOptions {
	return auditOptions{to: audit.FileOptions{MaxSize: 100, MaxAge: 366, MaxBackups: 100}}
}

func (a *auditOptions) flags(fs *pflag.FlagSet) {
	fs.StringVar(&a.policyFile, "audit-policy-file", a.policyFile,
		"Put requests that are answered from memory on record as the policy in this `file` says (audit.k8s.io/v1 Policy), which may be that of the API "+
			"server. What is passed through is on the API server's own record. When empty, there is no audit log.")
	fs.StringVar(&a.to.Path, "audit-log-path", a.to.Path,
		"Write audit events to this `file`, one JSON document a line, as the API server does. - is standard output.")
	fs.IntVar(&a.to.MaxSize, "audit-log-maxsize", a.to.MaxSize,
		"Rotate the audit log when it has this `number` of megabytes. 0 never does.")
	fs.IntVar(&a.to.MaxAge, "audit-log-maxage", a.to.MaxAge,
		"Keep rotated audit logs for this `number` of days. 0 keeps them however old they are.")
	fs.IntVar(&a.to.MaxBackups, "audit-log-maxbackup", a.to.MaxBackups,
		"Keep at most this `number` of rotated audit logs. 0 keeps any number.")
	fs.BoolVar(&a.to.Compress, "audit-log-compress", a.to.Compress, "Compress rotated audit logs with gzip.")
	fs.BoolVar(&a.required, "audit-required", a.required,
		"Answer nothing from memory whose audit events could not be written within a second: it is passed through, so that the API server puts it on its record. "+
			"Otherwise it is answered all the same. What blocks is then given its events later, at most 16 MiB and, of watches that have ended, 64 MiB; more than that is lost and counted.")
}

// validateAudit refuses a log without a policy, a policy without a log, and policies that kube-apiserver would refuse.
func (o *options) validateAudit() error {
	a := &o.audit
	for _, n := range []struct {
		flag  string
		value int
	}{{"audit-log-maxsize", a.to.MaxSize}, {"audit-log-maxage", a.to.MaxAge}, {"audit-log-maxbackup", a.to.MaxBackups}} {
		if n.value < 0 {
			return o.refuse(n.flag, fmt.Sprint(n.value), "must not be negative; 0 sets no limit")
		}
	}
	switch {
	case a.policyFile == "" && a.to.Path == "":
		if a.required {
			return o.refuse("audit-required", "true", "has a meaning only with --audit-policy-file")
		}
		return nil
	case a.policyFile == "":
		return o.refuse("audit-log-path", a.to.Path, "needs --audit-policy-file, which says what is put on record")
	case a.to.Path == "":
		return o.refuse("audit-policy-file", a.policyFile, "needs --audit-log-path; - is standard output")
	}
	text, err := os.ReadFile(a.policyFile)
	if err != nil {
		return o.refuse("audit-policy-file", a.policyFile, "cannot be read: "+cause(err))
	}
	if a.policy, err = audit.ParsePolicy(text); err != nil {
		return o.refuse("audit-policy-file", a.policyFile, "is no audit policy: "+err.Error())
	}
	return nil
}
