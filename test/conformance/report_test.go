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

// finish tells the outcome, and fails if a rule was not shown or a deviation declared for nothing: after a run of everything.
func (s *suite) finish(t *testing.T, complete bool) {
	t.Helper()
	text, cases := s.tally.Text()+"combinations of options:\n"+s.combinations, s.tally.Cases()
	rules := cover(cases)
	t.Log(text + "\n" + summaryOf(rules))
	if *report != "" {
		must(t, os.MkdirAll(*report, 0o755))
		must(t, os.WriteFile(filepath.Join(*report, "coverage.md"), []byte(coverageTable(rules)+"\n"+text), 0o644))
		must(t, os.WriteFile(filepath.Join(*report, "cases.tsv"), []byte(caseTable(cases)), 0o644))
	}
	if !complete || t.Failed() {
		return
	}
	for _, r := range rules {
		switch {
		case r.missing():
			t.Errorf("%s (%s) is shown by no case", r.ID(), r.Name)
		case r.Total > 0 && r.Exempt != "":
			t.Errorf("%s (%s) is exempt, and %v show it", r.ID(), r.Name, r.groups)
		}
	}
	for _, id := range s.tally.Unused() {
		t.Errorf("%s is declared, and nothing relied on it", id)
	}
}
