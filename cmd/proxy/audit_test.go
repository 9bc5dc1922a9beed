package main

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"spillway/internal/config"
)

// What is no policy is refused with the reason.
func TestAuditPolicyIsRefusedWithItsReason(t *testing.T) {
	for text, want := range map[string]string{
		"":                        "is no audit policy: ",
		"kind: Policy\nrules: []": "is no audit policy: ",
		"apiVersion: audit.k8s.io/v1\nkind: Policy\nrules:\n- level: Everything\n": `Unsupported value: "Everything"`,
	} {
		o := config.New()
		o.AuditPolicyFile, o.AuditLogPath = writeFile(t, "policy.yaml", text), "-"
		_, err := newAudit(o, prometheus.NewRegistry(), zap.NewNop())
		if err == nil || !strings.HasPrefix(err.Error(), "--audit-policy-file="+o.AuditPolicyFile+": ") ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// A log that cannot be written stops the start.
func TestAuditLogThatCannotBeWritten(t *testing.T) {
	policy := writeFile(t, "policy.yaml", "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules:\n- level: Metadata\n")
	got := start(nil, "--audit-policy-file="+policy, "--audit-log-path="+filepath.Join(policy, "audit.log"))
	if got.options == nil {
		t.Fatal(got.stderr)
	}
	_, err := newAudit(got.options, prometheus.NewRegistry(), zap.NewNop())
	if err == nil || !strings.HasSuffix(err.Error(), "cannot be written: not a directory") {
		t.Errorf("got %v", err)
	}
}
