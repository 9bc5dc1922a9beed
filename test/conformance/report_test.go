package conformance

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"spillway/test/exchange"
	"spillway/test/process"
)

// TestDeviationsAreWrittenDown holds ARCHITECTURE.md against the table.
func TestDeviationsAreWrittenDown(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(process.Repository(t), "ARCHITECTURE.md"))
	must(t, err)
	seen := map[string]bool{}
	for _, d := range exchange.Deviations {
		switch {
		case seen[d.ID]:
			t.Errorf("%s is declared twice", d.ID)
		case d.What == "" || d.Why == "" || !strings.HasPrefix(d.Rule, "W-"):
			t.Errorf("%s says too little", d.ID)
		case !strings.Contains(string(text), "| "+d.ID+" |"):
			t.Errorf("ARCHITECTURE.md lacks this line:\n| %s | %s | %s (%s) |", d.ID, d.What, d.Why, d.Rule)
		}
		seen[d.ID] = true
	}
}

// finish tells the outcome, and fails if a deviation was declared for nothing: after a run of everything.
func (s *suite) finish(t *testing.T, complete bool) {
	t.Helper()
	text := s.tally.Text()
	t.Log(text)
	if *report != "" {
		must(t, os.WriteFile(*report, []byte(text), 0o644))
	}
	if !complete || t.Failed() {
		return
	}
	for _, id := range s.tally.Unused() {
		t.Errorf("%s is declared, and nothing relied on it", id)
	}
}
