// Command versions runs suites against every minor of Kubernetes that is in support, against some
// with feature gates off, and during an upgrade, and writes the tables of docs/versions.md. Results
// are kept in a folder; a suite that has passed is not run again.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// column is a kube-apiserver that suites run against.
type column struct {
	minor string // 1.33
	gates string // of KUBERNETES_FEATURE_GATES
}

func (c column) String() string { return strings.TrimSpace(c.minor + " " + c.gates) }

// folder is where the results of a column are.
func (c column) folder() string { return strings.ReplaceAll(c.String(), " ", "-") }

// columns are all of them, the oldest first.
func columns() []column {
	var all []column
	for minor := 31; minor <= 37; minor++ {
		all = append(all, column{minor: fmt.Sprintf("1.%d", minor)})
	}
	for _, gate := range []string{"WatchList", "WatchListCompression", "ListFromCacheSnapshot"} {
		all = append(all, column{minor: "1.37", gates: gate + "=false"})
	}
	// which later ones do not have
	return append(all, column{minor: "1.33", gates: "ConsistentListFromCache=false"})
}

// upgrade is what suites of an upgrade run against: two kube-apiservers at one address.
var upgrade = column{minor: "1.36 to 1.37 and back"}

// environment chooses the kube-apiserver.
func (c column) environment() []string {
	if c == upgrade { // the suites start both
		return []string{"KUBERNETES=", "KUBERNETES_FEATURE_GATES="}
	}
	return []string{"KUBERNETES=" + c.minor, "KUBERNETES_FEATURE_GATES=" + c.gates}
}

// suite is what is run in every column.
type suite struct {
	name  string
	args  []string       // of go test
	short []string       // in place of args with -short
	long  bool           // it has no short form
	shows *regexp.Regexp // finds what the log says of a suite that passed; the first group is shown
}

// suites are rows of the table, below those of the rules.
func suites(report string) []suite {
	conformance := []string{"./e2e/conformance", "-timeout=1h", "-args", "-report=" + report}
	random := slices.Clip([]string{"./e2e/fuzzdiff", "-run=^TestRandomRequests", "-short"}) // without planted faults
	return []suite{
		{name: "conformance", args: conformance, short: append([]string{"-short"}, conformance...)},
		{
			name:  "random requests",
			args:  append(random, "-timeout=2h", "-requests=5000", "-minutes=60"),
			short: append(random, "-requests=500", "-minutes=5"),
			shows: regexp.MustCompile(`: (\d+ requests) \(`),
		},
		{
			name:  "read-your-writes",
			args:  []string{"./e2e/readyourwrites", "-run=^TestReadYourWrites$", "-timeout=2h", "-tries=20000"},
			short: []string{"./e2e/readyourwrites", "-run=^TestReadYourWrites$", "-tries=500"},
			shows: regexp.MustCompile(`(\d+ tries)`),
		},
		{
			name:  "an API server restart under informers",
			args:  []string{"./e2e/restart", "-run=^TestAPIServerRestarted$"},
			shows: regexp.MustCompile(`(\d+ relists)`),
		},
		{
			name:  "informers of client-go 1.30 to 1.37",
			args:  []string{"./e2e/versions", "-run=^TestInformersOf", "-timeout=30m"},
			long:  true, // it builds four versions of client-go
			shows: regexp.MustCompile(`http://\S+ 500 informers have synced after .*: (\d+ states)`),
		},
		{name: "one request, one answer", args: []string{"./e2e/versions", "-run=^TestOneAnswer$"}},
		{name: "watch-lists in plain or gzip", args: []string{"./e2e/compression"}},
	}
}

// upgradeSuites are rows of a table of their own.
func upgradeSuites() []suite {
	return []suite{
		{
			name: "200 informers", args: []string{"./e2e/restart", "-run=^TestRollingUpgrade$", "-timeout=30m"}, long: true,
			shows: regexp.MustCompile(`(\d+ relists)`),
		},
		{
			name: "random requests", args: []string{"./e2e/fuzzdiff", "-run=^TestUpgradeAnswers$", "-timeout=30m"}, long: true,
			shows: regexp.MustCompile(`: (\d+ requests) \(`),
		},
	}
}

func main() {
	out := flag.String("out", "", "the `folder` of results")
	only := flag.String("only", "", "run columns that match this `regexp`")
	short := flag.Bool("short", false, "run short forms of the suites")
	page := flag.String("page", "", "write the table of all results so far into this `file`")
	flag.Parse()
	if err := run(*out, *only, *page, *short); err != nil {
		fmt.Fprintln(os.Stderr, "versions:", err)
		os.Exit(1)
	}
}

func run(out, only, page string, short bool) error {
	wanted, err := regexp.Compile(only)
	if err != nil {
		return fmt.Errorf("-only: %w", err)
	}
	if out, err = filepath.Abs(out); err != nil {
		return fmt.Errorf("-out: %w", err)
	}
	var failures []error
	for _, c := range append(columns(), upgrade) {
		if !wanted.MatchString(c.String()) {
			continue
		}
		dir := filepath.Join(out, c.folder())
		of := suites(dir)
		if c == upgrade {
			of = upgradeSuites()
		}
		for _, s := range of {
			if short && s.long {
				continue
			}
			if err := runOnce(c, s, dir, short); err != nil {
				failures = append(failures, fmt.Errorf("%s: %s: %w", c, s.name, err))
			}
		}
	}
	if page != "" {
		failures = append(failures, writeTable(page, out))
	}
	return errors.Join(failures...)
}

// shortForm stands in the note of a result that is of the short form of a suite.
const shortForm = "short"

// runOnce runs a suite in a column unless it has passed before in this form or the whole.
func runOnce(c column, s suite, dir string, short bool) error {
	log := filepath.Join(dir, strings.ReplaceAll(s.name, " ", "-")+".log")
	if form, err := os.ReadFile(log + ".passed"); err == nil && (short || string(form) != shortForm) {
		return nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("cannot make the folder of results: %w", err)
	}
	file, err := os.Create(log)
	if err != nil {
		return fmt.Errorf("cannot make a log: %w", err)
	}
	defer file.Close()
	args := s.args
	if short && s.short != nil {
		args = s.short
	}
	began := time.Now()
	test := exec.Command("go", append([]string{"test", "-v", "-count=1"}, args...)...) // #nosec G204 -- our own
	test.Env = append(os.Environ(), c.environment()...)
	test.Stdout, test.Stderr = file, file
	err = test.Run()
	fmt.Printf("%s: %s: %v, %s\n", c, s.name, outcome(err), time.Since(began).Round(time.Second))
	if err != nil {
		return fmt.Errorf("%w; see %s", err, log)
	}
	form := "whole"
	if short && s.short != nil {
		form = shortForm
	}
	if err := os.WriteFile(log+".passed", []byte(form), 0o600); err != nil {
		return fmt.Errorf("cannot note that it passed: %w", err)
	}
	return nil
}

func outcome(err error) string {
	if err != nil {
		return "FAILED"
	}
	return "passed"
}
