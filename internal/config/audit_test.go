package config

import (
	"strings"
	"testing"
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
			if got.code != 0 || got.options == nil || len(got.options.Audit.Policy.Rules) != 1 {
				t.Errorf("%q: %+v", text, got)
			}
			continue
		}
		if got.code == 0 || !strings.HasPrefix(got.stderr, "spillway: --audit-policy-file="+file+": ") ||
			!strings.Contains(got.stderr, want) || strings.Count(got.stderr, "\n") != 1 {
			t.Errorf("%q: %q", text, got.stderr)
		}
	}
}
