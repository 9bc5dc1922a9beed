package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"spillway/test/e2e/conformance"
)

// The table stands between these lines of the page.
const (
	tableBegin = "<!-- made by make versions: begin -->\n"
	tableEnd   = "<!-- made by make versions: end -->\n"
)

// writeTable replaces the table of a page.
func writeTable(page, out string) error {
	text, err := os.ReadFile(page)
	if err != nil {
		return fmt.Errorf("cannot read the page: %w", err)
	}
	head, rest, ok := strings.Cut(string(text), tableBegin)
	_, tail, ok2 := strings.Cut(rest, tableEnd)
	if !ok || !ok2 {
		return fmt.Errorf("%s has no place for the table: %q and %q", page, tableBegin, tableEnd)
	}
	made := head + tableBegin + table(out) + tableEnd + tail
	if err := os.WriteFile(page, []byte(made), 0o644); err != nil { //nolint:gosec // a page of documentation
		return fmt.Errorf("cannot write the page: %w", err)
	}
	return nil
}

// table has a column for each API server, and a row for each group of rules and each suite; below
// it are the suites of an upgrade.
func table(out string) string {
	var b strings.Builder
	all := columns()
	var brief []string
	b.WriteString("\n| |")
	for _, c := range all {
		fmt.Fprintf(&b, " %s |", strings.TrimPrefix(c.String(), "1.37 "))
		form, err := os.ReadFile(filepath.Join(out, c.folder(), "conformance.log.passed"))
		if err == nil && string(form) == shortForm {
			brief = append(brief, c.String())
		}
	}
	b.WriteString("\n|---|" + strings.Repeat("---|", len(all)) + "\n")
	cases := map[column]map[string]cell{}
	for _, c := range all {
		cases[c] = readCases(filepath.Join(out, c.folder(), "cases.tsv"))
	}
	for _, g := range conformance.Groups {
		fmt.Fprintf(&b, "| %s |", g.Name)
		for _, c := range all {
			fmt.Fprintf(&b, " %s |", cases[c][g.Name])
		}
		b.WriteString("\n")
	}
	for _, s := range suites("")[1:] {
		fmt.Fprintf(&b, "| %s |", s.name)
		for _, c := range all {
			fmt.Fprintf(&b, " %s |", s.cell(filepath.Join(out, c.folder())))
		}
		b.WriteString("\n")
	}
	if len(brief) > 0 {
		fmt.Fprintf(&b, "\nWithout the cases that wait for long: %s.\n", strings.Join(brief, ", "))
	}
	fmt.Fprintf(&b, "\n| | %s |\n|---|---|\n", upgrade)
	for _, s := range upgradeSuites() {
		fmt.Fprintf(&b, "| %s | %s |\n", s.name, s.cell(filepath.Join(out, upgrade.folder())))
	}
	return b.String() + "\n"
}

// cell is how the cases of a group of rules compare.
type cell struct {
	cases, different int
	deviations       []string
}

func (c cell) String() string {
	switch {
	case c.cases == 0:
		return ""
	case c.different > 0:
		return fmt.Sprintf("**%d different**", c.different)
	case len(c.deviations) == 0:
		return "equal"
	}
	return linked(c.deviations)
}

// linked are deviations as links, in order.
func linked(ids []string) string {
	slices.SortFunc(ids, func(a, b string) int { return number(a) - number(b) })
	var links []string
	for _, id := range slices.Compact(ids) {
		links = append(links, fmt.Sprintf("[%s](deviations.md#%s)", id, strings.ToLower(id)))
	}
	return strings.Join(links, ", ")
}

// number is the n of V-n or W-n.
func number(id string) int {
	_, text, _ := strings.Cut(id, "-")
	n, _ := strconv.Atoi(text) // what is no number comes first
	return n
}

// readCases sorts the cases of a run of the conformance suite by groups of rules. Without a run
// there are none.
func readCases(path string) map[string]cell {
	groups := map[string]cell{}
	text, err := os.ReadFile(path)
	if err != nil {
		return groups
	}
	for line := range strings.Lines(string(text)) {
		// test, rules, direct, proxied, equal, answered, deviation
		fields := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		if len(fields) != 7 || fields[0] == "test" {
			continue
		}
		seen := map[string]bool{}
		for _, rule := range strings.Fields(fields[1]) {
			name := conformance.GroupOf(number(rule))
			if seen[name] {
				continue
			}
			seen[name] = true
			c := groups[name]
			c.cases++
			if fields[4] != "true" {
				c.different++
			}
			if fields[6] != "" && !slices.Contains(c.deviations, fields[6]) {
				c.deviations = append(c.deviations, fields[6])
			}
			groups[name] = c
		}
	}
	return groups
}

// cell is what a suite showed.
func (s suite) cell(dir string) string {
	log := filepath.Join(dir, strings.ReplaceAll(s.name, " ", "-")+".log")
	text, err := os.ReadFile(log)
	if err != nil {
		return ""
	}
	if _, err := os.Stat(log + ".passed"); err != nil {
		return "**failed**"
	}
	said := "equal"
	if s.shows != nil {
		if match := s.shows.FindSubmatch(text); match != nil {
			said = string(match[1])
		}
	}
	var ids []string
	for line := range strings.Lines(string(text)) {
		// "V-1       12×  …", of exchange.Tally
		if fields := strings.Fields(line); len(fields) > 1 && strings.HasPrefix(fields[0], "V-") && fields[1] != "0×" {
			ids = append(ids, fields[0])
		}
	}
	if len(ids) > 0 {
		said += ": " + linked(ids)
	}
	return said
}
