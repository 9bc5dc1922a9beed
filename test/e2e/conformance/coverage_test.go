package conformance

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"spillway/test/framework/exchange"
	"spillway/test/framework/process"
)

// coverage is which cases stand for a rule.
type coverage struct {
	Rule
	exchange.Count
	groups []string // of tests
	failed []string // tests
}

// cover sorts cases by rule.
func cover(cases []exchange.Case) []*coverage {
	var all []*coverage
	byName := map[string]*coverage{}
	for _, r := range Rules {
		c := &coverage{Rule: r}
		all, byName[r.ID()] = append(all, c), c
	}
	for _, s := range cases {
		for _, rule := range s.Rules {
			c := byName[rule]
			if c == nil {
				continue // TestRules reports it
			}
			c.Add(s)
			if g := group(s.Test); !slices.Contains(c.groups, g) {
				c.groups = append(c.groups, g)
			}
			if !s.Equal {
				c.failed = append(c.failed, s.Test)
			}
		}
	}
	return all
}

// group is what a test's name begins with: the parts that say what, not with which values.
func group(test string) string {
	parts := strings.Split(strings.TrimPrefix(test, "TestConformance/"), "/")
	return strings.Join(parts[:min(len(parts), 3)], "/")
}

// missing reports that nothing stands for a rule.
func (c *coverage) missing() bool {
	return c.Total == 0 && len(c.Elsewhere) == 0 && c.Exempt == ""
}

// outcome is a rule's cell in the table.
func (c *coverage) outcome() string {
	switch {
	case len(c.failed) > 0:
		return "DIFFERENT: " + strings.Join(c.failed[:min(len(c.failed), 5)], ", ")
	case c.missing():
		return "NOT COVERED"
	case c.Total > 0:
		return "equal"
	case len(c.Elsewhere) > 0:
		return "tested elsewhere"
	}
	return "not applicable"
}

// summaryOf says how many rules were shown and how.
func summaryOf(all []*coverage) string {
	shown, elsewhere, exempt, failed := 0, 0, 0, 0
	for _, c := range all {
		switch {
		case len(c.failed) > 0:
			failed++
		case c.Total > 0:
			shown++
		case len(c.Elsewhere) > 0:
			elsewhere++
		case c.Exempt != "":
			exempt++
		}
	}
	return fmt.Sprintf("%d rules: %d shown by cases asked of kube-apiserver and of Spillway, all of them equal; %d by "+
		"tests of packages alone; %d not applicable; "+
		"%d different; %d not shown", len(all), shown, elsewhere, exempt, failed, len(all)-shown-elsewhere-exempt-failed)
}

// coverageTable is a table of the rules.
func coverageTable(all []*coverage) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# The rules of the wire, and what shows them\n\n%s.\n\n", summaryOf(all))
	fmt.Fprintln(&b, "| rule | about | cases | from memory | refused here | passed through | direct and proxied | tests |")
	fmt.Fprintln(&b, "|---|---|---:|---:|---:|---:|---|---|")
	for _, c := range all {
		tests := slices.Concat(c.groups, c.Elsewhere)
		if c.Exempt != "" {
			tests = append(tests, c.Exempt)
		}
		fmt.Fprintf(&b, "| %s | %s | %d | %d | %d | %d | %s | %s |\n",
			c.ID(), c.Name, c.Total, c.Memory, c.Refusal, c.Upstream, c.outcome(), strings.Join(tests, ", "))
	}
	return b.String()
}

// caseTable is every case, separated by tabs.
func caseTable(cases []exchange.Case) string {
	var b strings.Builder
	fmt.Fprintln(&b, "test\trules\tdirect\tproxied\tequal\tanswered\tdeviation")
	for _, s := range cases {
		fmt.Fprintf(&b, "%s\t%s\t%s\t%s\t%t\t%v\t%s\n", s.Test, strings.Join(s.Rules, " "), status(s.Direct),
			status(s.Proxied), s.Equal, s.By, s.Deviation)
	}
	return b.String()
}

func status(code int) string {
	if code == 0 {
		return "–"
	}
	return strconv.Itoa(code)
}

// ID is how tests cite a rule.
func (r Rule) ID() string { return fmt.Sprintf("W-%d", r.Number) }

// TestRules holds the table of rules against what cites it: rules stand in order, tests that it
// names exist, and no case cites a rule that there is not.
func TestRules(t *testing.T) {
	known := map[string]bool{}
	for i, r := range Rules {
		known[r.ID()] = true
		if i > 0 && r.Number <= Rules[i-1].Number {
			t.Errorf("%s comes after W-%d", r.ID(), Rules[i-1].Number)
		}
		if r.Name == "" || r.Exempt != "" && len(r.Elsewhere) > 0 {
			t.Errorf("%s: says too little, or is exempt and tested", r.ID())
		}
		for _, test := range r.Elsewhere {
			if !testExists(t, test) {
				t.Errorf("%s: there is no %s", r.ID(), test)
			}
		}
	}
	cited := regexp.MustCompile(`W-[0-9]+`)
	files, err := filepath.Glob("*_test.go")
	must(t, err)
	for _, file := range append(files, "../../framework/exchange/deviations.go") {
		text, err := os.ReadFile(file)
		must(t, err)
		for _, id := range cited.FindAllString(string(text), -1) {
			if !known[id] {
				t.Errorf("%s cites %s, which there is not", file, id)
			}
		}
	}
}

// testExists finds "folder TestName".
func testExists(t *testing.T, test string) bool {
	t.Helper()
	folder, name, _ := strings.Cut(test, " ")
	files, err := filepath.Glob(filepath.Join(process.Repository(t), folder, "*_test.go"))
	must(t, err)
	for _, file := range files {
		text, err := os.ReadFile(file)
		must(t, err)
		if strings.Contains(string(text), "\nfunc "+name+"(t *testing.T)") {
			return true
		}
	}
	return false
}
