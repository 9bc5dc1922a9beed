package exchange

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"spillway/test/framework/process"
)

var update = flag.Bool("update", false, "rewrite docs/deviations.md, and a table of docs/protocol.md")

// TestDeviationsReference compares docs/deviations.md, and the table of rules in docs/protocol.md
// that depend on the API server's version, with the table of deviations.
func TestDeviationsReference(t *testing.T) {
	seen := map[string]bool{}
	for _, d := range Deviations {
		switch {
		case seen[d.ID]:
			t.Errorf("%s is declared twice", d.ID)
		case d.What == "" || d.Why == "" || !strings.HasPrefix(d.Rule, "W-"),
			strings.HasPrefix(d.ID, "V-") != (d.Releases != ""):
			t.Errorf("%s lacks a text or a rule", d.ID)
		}
		seen[d.ID] = true
	}
	compareDocument(t, "deviations.md", func(string) string { return deviationsReference() })
	compareDocument(t, "protocol.md", func(kept string) string {
		head, rest, ok := strings.Cut(kept, olderRulesBegin)
		_, tail, ok2 := strings.Cut(rest, olderRulesEnd)
		if !ok || !ok2 {
			t.Fatalf("docs/protocol.md has no place for the table: %q and %q", olderRulesBegin, olderRulesEnd)
		}
		return head + olderRulesBegin + olderRules() + olderRulesEnd + tail
	})
}

// compareDocument compares a document with what it should be, or rewrites it.
func compareDocument(t *testing.T, name string, want func(kept string) string) {
	t.Helper()
	path := filepath.Join(process.Repository(t), "docs", name)
	kept, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	made := want(string(kept))
	if string(kept) == made {
		return
	}
	if !*update {
		t.Errorf("docs/%s is not what the table says: run go test ./framework/exchange -update in test/", name)
	} else if err := os.WriteFile(path, []byte(made), 0o644); err != nil {
		t.Fatal(err)
	}
}

// The table of rules that depend on the version stands between these lines of docs/protocol.md.
const (
	olderRulesBegin = "<!-- made by go test ./framework/exchange -update in test/: begin -->\n"
	olderRulesEnd   = "<!-- made by go test ./framework/exchange -update in test/: end -->\n"
)

// olderRules lists the rules that older API servers do not keep to.
func olderRules() string {
	releases := map[int][]string{}
	for _, d := range Deviations {
		if d.Releases == "" {
			continue
		}
		for _, match := range rule.FindAllStringSubmatch(d.Rule, -1) {
			n, _ := strconv.Atoi(match[1]) // the pattern's digits
			link := fmt.Sprintf("[%s](deviations.md#%s)", d.ID, strings.ToLower(d.ID))
			releases[n] = append(releases[n], link+" ("+d.Releases+")")
		}
	}
	var b strings.Builder
	b.WriteString("| rule | deviation, and where it occurs |\n|---|---|\n")
	for _, n := range slices.Sorted(maps.Keys(releases)) {
		fmt.Fprintf(&b, "| [W-%d] | %s |\n", n, strings.Join(releases[n], "; "))
	}
	return b.String()
}

// deviationsReference is docs/deviations.md.
func deviationsReference() string {
	var b strings.Builder
	b.WriteString(deviationsHead)
	deviationTable(&b, "DEV-")
	b.WriteString(olderHead)
	deviationTable(&b, "V-")
	b.WriteString(normsHead)
	deviationTable(&b, "N-")
	b.WriteString(deviationsTail)
	return b.String()
}

// rule finds citations of docs/protocol.md.
var rule = regexp.MustCompile(`W-(\d+)`)

// deviationTable lists the deviations whose ID has a prefix.
func deviationTable(b *strings.Builder, prefix string) {
	b.WriteString("| id | what | why | rule |\n|---|---|---|---|\n")
	for _, d := range Deviations {
		if !strings.HasPrefix(d.ID, prefix) {
			continue
		}
		what := d.What
		if d.Releases != "" {
			what = d.Releases + ": " + what
		}
		fmt.Fprintf(b, "| <a id=%q></a>%s | %s | %s | %s |\n", strings.ToLower(d.ID), d.ID, what, d.Why,
			rule.ReplaceAllString(d.Rule, "[$0](protocol.md#w-$1)"))
	}
}

const deviationsHead = `<!-- Made by go test ./framework/exchange -update in test/: change the table, not this. -->
# Where Spillway differs from kube-apiserver

The conformance suite sends every request to a kube-apiserver, both directly and through Spillway.
It compares the responses: status, headers, bodies, and streams event by event. This page lists all
differences that the suite allows. It fails for any other difference, and for an entry that never
occurs. The table is in ` + "`test/framework/exchange/deviations.go`" + `. The rules are those of
[protocol.md](protocol.md).

## Differences

`

const olderHead = `
## Before older API servers

Spillway has the semantics of the newest kube-apiserver, whatever its upstream is, and upstream's
encodings. Upstream may be an older API server, or have other feature gates. Then a response may
differ from upstream's only if the newest API server gives it, and only as follows.
[versions.md](versions.md) says which rules are affected in which version.

`

const normsHead = `
## Values of the moment

These values also differ between two responses of one kube-apiserver. The suite compares them by a
rule instead of their bytes.

`

const deviationsTail = `
## By option

With ` + "`--strip-managed-fields`" + `, objects are mirrored without ` + "`metadata.managedFields`" + `. Responses from
memory lack this field; responses that pass through have it. Clients can write as before: the
API server keeps the managedFields that an update omits, and merges what a client applies. A client
that reads which manager owns a field must request the most recent state of a resource that is not
mirrored.

## Outside the comparison

* Spillway answers ` + "`GET /spillway/readyz`" + ` on a main listener itself, about this replica. It sends no
  request to upstream. If a load balancer probed upstream's ` + "`/readyz`" + `, a failure of upstream would
  take all replicas out of service. No path of kube-apiserver begins with ` + "`/spillway`" + `.
* While upstream refuses a resource, Spillway keeps the resource's watches open and silent. Upstream
  ends such watches with its watch cache. Spillway's watches continue once upstream serves the
  resource again, so that no client has to list.
* After a gap, a client may resume at exactly the last resourceVersion in front of the gap. It then
  receives the deletions of the gap, even if it had them already. client-go calls ` + "`OnDelete`" + ` a
  second time, which is harmless, while a missing deletion would last. No client sees an object that
  was created and deleted inside a gap. The simulation checks both.
* In a TLS handshake, a client may send at most 32 KiB. It may have at most 10 certificates, of
  16 KiB together and 64 KiB decoded. Otherwise, the handshake fails. kube-apiserver accepts
  certificates of 256 KiB, which hold megabytes and cost tenths of a second for each request.
`
