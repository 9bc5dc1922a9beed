package watch

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"spillway/internal/auth/reauth"
)

// Each constant of endreason.go has its row in endTable, and only those of the first block are
// clean.
func TestEachEndReasonHasItsRow(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "endreason.go", nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	var blocks [][]string // the names of constants, by block
	var rows []string     // the names in endTable
	for _, d := range file.Decls {
		decl, ok := d.(*ast.GenDecl)
		if !ok || decl.Tok != token.CONST && decl.Tok != token.VAR {
			continue
		}
		var names []string
		for _, spec := range decl.Specs {
			values := spec.(*ast.ValueSpec)
			for _, name := range values.Names {
				names = append(names, name.Name)
			}
			if values.Names[0].Name == "endTable" {
				for _, e := range values.Values[0].(*ast.CompositeLit).Elts {
					rows = append(rows, e.(*ast.CompositeLit).Elts[0].(*ast.KeyValueExpr).Value.(*ast.Ident).Name)
				}
			}
		}
		if decl.Tok == token.CONST {
			blocks = append(blocks, names)
		}
	}
	if len(blocks) != 2 {
		t.Fatalf("%d blocks of constants, want those of clean ends and those of broken ends", len(blocks))
	}
	if all := slices.Concat(blocks...); !slices.Equal(slices.Sorted(slices.Values(all)),
		slices.Sorted(slices.Values(rows))) {
		t.Fatalf("endTable has %q, the constants are %q", rows, all)
	}
	for i, name := range rows {
		if row := endTable[i]; row.clean != slices.Contains(blocks[0], name) {
			t.Errorf("%s: clean is %t, its block says otherwise", name, row.clean)
		}
	}
}

// Exactly the evictions of slow clients have a log message and the prefix slow_client_, by which
// metrics, logs and the status page find them. Exactly the ends of package reauth are revocations.
func TestEndReasonNames(t *testing.T) {
	snake := regexp.MustCompile(`^[a-z]+(_[a-z]+)*$`)
	seen := map[EndReason]bool{}
	for _, row := range endTable {
		evicted := row.evicted != ""
		if evicted != strings.HasPrefix(string(row.reason), "slow_client_") || evicted && row.clean {
			t.Errorf("%s: evicted: %t, clean: %t", row.reason, evicted, row.clean)
		}
		if known := slices.Contains(reauth.Ends, reauth.End(row.reason)); row.revoked != known || known && !row.clean {
			t.Errorf("%s: revoked: %t, in reauth.Ends: %t, clean: %t", row.reason, row.revoked, known, row.clean)
		}
		if seen[row.reason] || !snake.MatchString(string(row.reason)) {
			t.Errorf("%s: twice: %t, or not in snake case", row.reason, seen[row.reason])
		}
		seen[row.reason] = true
	}
	for _, why := range reauth.Ends {
		if !seen[EndReason(why)] {
			t.Errorf("reauth.Ends has %s, endTable has not", why)
		}
	}
}

// TestDesignListsEndReasons shows that design D10 lists EndReasons, in their order.
func TestDesignListsEndReasons(t *testing.T) {
	text, err := os.ReadFile("../../docs/design/0010-slots-and-writers.md")
	if err != nil {
		t.Fatal(err)
	}
	_, list, found := strings.Cut(string(text), "(`watch.EndReason`):")
	list, _, ended := strings.Cut(list, ".")
	if !found || !ended {
		t.Fatal("design D10 has no list of reasons")
	}
	var listed []EndReason
	for _, name := range regexp.MustCompile("`([^`]*)`").FindAllStringSubmatch(list, -1) {
		listed = append(listed, EndReason(name[1]))
	}
	if !slices.Equal(listed, EndReasons) {
		t.Errorf("design D10 lists %q, EndReasons are %q", listed, EndReasons)
	}
}

// TestEvictionsAreKept shows that the report has the evictions of slow clients, for whichever
// reason, and no other ends.
func TestEvictionsAreKept(t *testing.T) {
	bubbles(t, func(t *testing.T, d delivery) {
		w := newWorld(t, d)
		p := w.watch("/api/v1/pods?watch=1&resourceVersion=100")
		var evicted int
		for _, r := range EndReasons {
			w.manager.endStats.addEnd(p.stream, r)
			if strings.HasPrefix(string(r), "slow_client_") {
				evicted++
			}
			if counts, kept := w.manager.EndCounts(); counts[r] != 1 || len(kept) != evicted {
				t.Errorf("%s: counted %d times, and %d evictions are kept, want %d", r, counts[r], len(kept), evicted)
			}
		}
	})
}

// TestDashboardCountsAllEvictions shows that the dashboard counts the evictions of slow clients for
// whichever reason, and explains reasons that exist.
func TestDashboardCountsAllEvictions(t *testing.T) {
	text, err := os.ReadFile("../../charts/spillway/dashboard.json")
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`reason=[^,}]*slow_client[^,}]*`).FindAllString(string(text), -1)
	if len(found) == 0 {
		t.Error("the dashboard counts no evictions")
	}
	for _, matcher := range found {
		if matcher != `reason=~\"slow_client_.*\"` {
			t.Errorf("the dashboard counts %s", matcher)
		}
	}
	explained := regexp.MustCompile(`"Why watches end",\s+"description": "([^"]+)"`).FindStringSubmatch(string(text))
	if explained == nil {
		t.Fatal("the dashboard does not explain why watches end")
	}
	for _, name := range regexp.MustCompile(`\w+_\w+`).FindAllString(explained[1], -1) {
		if !slices.Contains(EndReasons, EndReason(name)) {
			t.Errorf("the dashboard explains %s, which is no reason", name)
		}
	}
}
