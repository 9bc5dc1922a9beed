package main

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
)

// What is no policy is refused with the reason, and what is one is read.
func TestAuditPolicy(t *testing.T) {
	for text, want := range map[string]string{
		"":                        "is no audit policy: ",
		"kind: Policy\nrules: []": "is no audit policy: ",
		"apiVersion: audit.k8s.io/v1\nkind: Policy\nrules:\n- level: Everything\n": `Unsupported value: "Everything"`,
		"apiVersion: audit.k8s.io/v1\nkind: Policy\nrules:\n- level: Metadata\n":   "",
	} {
		file := writeFile(t, "policy.yaml", text)
		got := start(nil, "--audit-log-path=-", "--audit-policy-file="+file)
		if want == "" {
			if got.code != 0 || got.options == nil || len(got.options.audit.policy.Rules) != 1 {
				t.Errorf("%q: %+v", text, got)
			}
			continue
		}
		if got.code == 0 || !strings.HasPrefix(got.stderr, "spillway: --audit-policy-file="+file+": ") || !strings.Contains(got.stderr, want) || strings.Count(got.stderr, "\n") != 1 {
			t.Errorf("%q: %q", text, got.stderr)
		}
	}
}

// A log that cannot be written stops the start.
func TestAuditLogThatCannotBeWritten(t *testing.T) {
	o := newOptions()
	policy := writeFile(t, "policy.yaml", "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules:\n- level: Metadata\n")
	o.audit.policyFile, o.audit.to.Path = policy, filepath.Join(policy, "audit.log")
	if err := o.validateAudit(); err != nil {
		t.Fatal(err)
	}
	if _, err := newAudit(o, prometheus.NewRegistry(), zap.NewNop()); err == nil || !strings.HasSuffix(err.Error(), "cannot be written: not a directory") {
		t.Errorf("got %v", err)
	}
}
