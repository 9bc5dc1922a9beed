package main

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
)

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
