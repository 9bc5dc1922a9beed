package clients

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"spillway/test/framework/process"
)

var update = flag.Bool("update", false, "write the table of docs/clients.md")

// The table is between these lines of docs/clients.md.
const (
	tableBegin = "<!-- Made by go test ./e2e/clients -update -->\n"
	tableEnd   = "\n## "
	tableHead  = "| client | version | requests | synced | equal at the end | lists again when Spillway is killed; " +
		"another replica takes over; the API server is restarted | directly |\n|---|---|---|---|---|---|---|\n"
)

// known are the cells that do not depend on a run: the client and its version.
func (c client) known(t *testing.T) string {
	t.Helper()
	return fmt.Sprintf("| %s | %s |", c.name, strings.TrimPrefix(c.pinned(t, c.lock[0], c.lock[1]), "v"))
}

// documented checks that docs/clients.md has a line for each client, of the pinned version.
func documented(t *testing.T) {
	t.Helper()
	_, table, _ := document(t)
	var have, want []string
	for line := range strings.Lines(strings.TrimPrefix(table, tableHead)) {
		if cells := strings.SplitAfterN(line, "|", 4); len(cells) == 4 {
			have = append(have, strings.Join(cells[:3], ""))
		}
	}
	for _, c := range clients {
		want = append(want, c.known(t))
	}
	if !slices.Equal(have, want) {
		t.Errorf("docs/clients.md has the clients\n%s\nwant\n%s\nrun this test with -update", strings.Join(have, "\n"),
			strings.Join(want, "\n"))
	}
}

// document is docs/clients.md in three parts, of which the second is the table.
func document(t *testing.T) (before, table, after string) {
	t.Helper()
	text, err := os.ReadFile(documentName(t))
	must(t, err)
	before, rest, ok := strings.Cut(string(text), tableBegin)
	table, after, ok2 := strings.Cut(rest, tableEnd)
	if !ok || !ok2 {
		t.Fatalf("docs/clients.md has no line %q", tableBegin)
	}
	return before, table, after
}

func documentName(t *testing.T) string {
	t.Helper()
	return filepath.Join(process.Repository(t), "docs", "clients.md")
}

// write writes the table of this run.
func (s *scene) write(equal map[*run]bool) {
	s.t.Helper()
	if len(s.through) < len(clients) {
		s.t.Error("not every client ran: the table is not written")
		return
	}
	before, _, after := document(s.t)
	table := tableHead
	for i, r := range s.through {
		direct := s.direct[i]
		synced := "yes"
		if r.client.unsynced {
			synced = "has no notion of it"
		}
		table += fmt.Sprintf("%s %s | %s | %s | %s | %s |\n", r.client.known(s.t), s.requests(r).how, synced, yes(equal[r]),
			figures(r.phases), figures(direct.phases)+without(equal[direct]))
	}
	must(s.t, os.WriteFile(documentName(s.t), []byte(before+tableBegin+table+tableEnd+after), 0o644))
}

func yes(is bool) string {
	if is {
		return "yes"
	}
	return "no"
}

func without(equal bool) string {
	if equal {
		return ""
	}
	return ", not equal"
}

func figures(phases []int) string {
	return strings.Trim(strings.ReplaceAll(fmt.Sprint(phases), " ", "; "), "[]")
}
