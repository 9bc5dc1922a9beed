package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestTable makes a table of the results of one column.
func TestTable(t *testing.T) {
	out := t.TempDir()
	dir := filepath.Join(out, "1.33")
	must(t, os.MkdirAll(dir, 0o755))
	write := func(name, text string) {
		t.Helper()
		must(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	write("cases.tsv", "test\trules\tdirect\tproxied\tequal\tanswered\tdeviation\n"+
		"a\tW-60\t200\t200\ttrue\tfrom memory\t\n"+
		"b\tW-100 W-101\t422\t200\ttrue\tfrom memory\tV-1\n"+
		"c\tW-150\t200\t400\tfalse\tfrom memory\t\n")
	write("random-requests.log",
		"seed 1, 5s: 500 requests (4 for events\n  V-6       3×  what (W-1): why\n  V-2       0×  x\n")
	write("random-requests.log.passed", "")
	write("read-your-writes.log", "")
	write("conformance.log.passed", shortForm)
	dir = filepath.Join(out, upgrade.folder())
	must(t, os.MkdirAll(dir, 0o755))
	write("200-informers.log", "an upgrade: 0 relists")
	write("200-informers.log.passed", "whole")
	page := filepath.Join(out, "page.md")
	must(t, os.WriteFile(page, []byte("head\n"+tableBegin+"old\n"+tableEnd+"tail\n"), 0o600))
	must(t, writeTable(page, out))
	text, err := os.ReadFile(page)
	must(t, err)
	for _, want := range []string{
		"head\n", "tail\n", "| lists |  |  | equal |", "| watches |  |  | [V-1](deviations.md#v-1) |",
		"| selectors |  |  | **1 different** |",
		"| random requests |  |  | 500 requests: [V-6](deviations.md#v-6) |", "| read-your-writes |  |  | **failed** |",
		"\nWithout the cases that wait for long: 1.33.\n", "| 200 informers | 0 relists |\n| random requests |  |\n",
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if strings.Contains(string(text), "old") {
		t.Error("the old table is still there")
	}
}
