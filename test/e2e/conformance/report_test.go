package conformance

import (
	"os"
	"path/filepath"
	"testing"
)

// finish logs the outcome. After a complete run it fails if a rule was not shown, or if a declared
// deviation did not occur.
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
