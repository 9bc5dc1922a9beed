package authcluster

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Audit is upstream's audit log.
type Audit struct{ name string }

// auditPolicy has everything written down, and nothing of what is in it.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
rules:
- level: Metadata
`

// NewAudit returns a log, and the flags by which kube-apiserver writes it.
func NewAudit(t *testing.T) ([]string, *Audit) {
	t.Helper()
	policy, log := filepath.Join(t.TempDir(), "policy.yaml"), filepath.Join(t.TempDir(), "audit.log")
	if err := os.WriteFile(policy, []byte(auditPolicy), 0o600); err != nil {
		t.Fatal(err)
	}
	return []string{"--audit-policy-file=" + policy, "--audit-log-path=" + log, "--audit-log-mode=blocking-strict"},
		&Audit{name: log}
}

// Entry is what upstream wrote down about a request at one of its stages.
type Entry struct {
	AuditID    string
	Stage      string // RequestReceived, ResponseStarted, ResponseComplete, Panic
	RequestURI string
	Verb       string
	User       AuditUser
	// ImpersonatedUser is the user that the request was carried out as, if not User.
	ImpersonatedUser *AuditUser
	UserAgent        string
	ObjectRef        *struct{ Resource, Namespace, Name, APIGroup, Subresource string }
	ResponseStatus   *struct{ Code int }

	RequestReceivedTimestamp, StageTimestamp time.Time
}

// AuditUser is a user as upstream authenticated it.
type AuditUser struct {
	Username, UID string
	Groups        []string
	Extra         map[string][]string
}

// Entries are those so far whose request's path and query contain text.
func (a *Audit) Entries(t *testing.T, text string) []Entry {
	t.Helper()
	log, err := os.ReadFile(a.name)
	if err != nil {
		t.Fatal(err)
	}
	var entries []Entry
	for line := range bytes.Lines(log) {
		if !bytes.Contains(line, []byte(`"requestURI"`)) || line[len(line)-1] != '\n' {
			continue // it is being written
		}
		var e Entry
		if err := json.Unmarshal(line, &e); err != nil {
			t.Fatalf("the audit log says %s: %v", line, err)
		}
		if strings.Contains(e.RequestURI, text) {
			entries = append(entries, e)
		}
	}
	return entries
}
