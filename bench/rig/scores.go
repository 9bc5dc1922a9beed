package rig

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"
	"text/tabwriter"
	"time"
)

// Scores is the table that a program which compares ends with: figures of Spillway beside those of
// kube-apiserver, what became of them, and what they must be.
type Scores struct {
	Section string // where its table stands in a document; empty: where the program's name says

	title string
	began time.Time

	mu       sync.Mutex
	scores   []score
	pictures []string // in Markdown
}

// score is one line of the table, as it is printed.
type score struct {
	what, spillway, against, result string
	limit                           Limit
	verdict                         string
}

// Limit is what a figure must be and what it is meant to become. The zero value judges nothing.
type Limit struct {
	Must, Aim float64
	AtLeast   bool // the figure must be as much; otherwise it must not be more
}

// NoLimit is for figures that only inform.
var NoLimit = Limit{}

// AtMost is an upper limit.
func AtMost(must, aim float64) Limit { return Limit{Must: must, Aim: aim} }

// AtLeast is a lower limit.
func AtLeast(must, aim float64) Limit { return Limit{Must: must, Aim: aim, AtLeast: true} }

const (
	missed  = "MISSED"
	reached = "must"
	aimed   = "aim"
)

func (l Limit) judge(value float64) string {
	within := func(limit float64) bool {
		if l.AtLeast {
			return value >= limit
		}
		return value <= limit // not so for NaN, when nothing was measured
	}
	switch {
	case l == NoLimit:
		return ""
	case within(l.Aim):
		return aimed
	case within(l.Must):
		return reached
	}
	return missed
}

// text is the limit in the columns of the table.
func (l Limit) text(of float64) string {
	if l == NoLimit {
		return ""
	}
	sign := "≤ "
	if l.AtLeast {
		sign = "≥ "
	}
	return sign + fmt.Sprintf("%.4g", of)
}

// Unit writes a figure.
type Unit string

// The units in use, as formats.
const (
	Micros    Unit = "%.2f µs"
	Millis    Unit = "%.2f ms"
	Seconds   Unit = "%.2f s"
	Kilobytes Unit = "%.2f kB"
	Megabytes Unit = "%.1f MB"
	Count     Unit = "%.0f"
	PerSecond Unit = "%.0f/s"
	Busy      Unit = "%.1f ms/s" // of a processor
	Times     Unit = "%.2f×"
	Cores     Unit = "%.2f"
)

// median writes the median of figures, if there are any, and whose they are.
func (u Unit) median(of []float64, whose string) string {
	if len(of) == 0 {
		return ""
	}
	text := fmt.Sprintf(string(u), Median(of))
	if whose != "" {
		text += " (" + whose + ")"
	}
	return text
}

// Median is the one in the middle, NaN of none.
func Median(values []float64) float64 {
	if len(values) == 0 {
		return nan
	}
	sorted := slices.Sorted(slices.Values(values))
	return (sorted[(len(sorted)-1)/2] + sorted[len(sorted)/2]) / 2
}

// Ratio adds a line: the medians of what was measured in rounds, and the first as a multiple of the
// second.
func (s *Scores) Ratio(what string, unit Unit, spillway, apiserver []float64, limit Limit) {
	s.RatioTo(what, "", unit, spillway, apiserver, limit)
}

// RatioTo is Ratio for figures that are not kube-apiserver's but those of what is named.
func (s *Scores) RatioTo(what, other string, unit Unit, spillway, against []float64, limit Limit) {
	ratio := Median(spillway) / Median(against)
	s.add(score{what, unit.median(spillway, ""), unit.median(against, other), fmt.Sprintf("%.3f", ratio), limit,
		limit.judge(ratio)})
}

// Figure adds a line that judges Spillway's own figure. What is beside it, if anything, belongs to
// kube-apiserver or to what is named.
func (s *Scores) Figure(what, other string, unit Unit, spillway, beside []float64, limit Limit) {
	s.add(score{what, unit.median(spillway, ""), unit.median(beside, other), "", limit, limit.judge(Median(spillway))})
}

// Note adds a line that only informs.
func (s *Scores) Note(what, format string, args ...any) {
	s.add(score{what: what, spillway: fmt.Sprintf(format, args...)})
}

// Miss adds a line for what could not be measured.
func (s *Scores) Miss(what, format string, args ...any) {
	s.add(score{what: what, spillway: fmt.Sprintf(format, args...), verdict: missed})
}

// Picture adds a drawing, which stands below the table in a document.
func (s *Scores) Picture(title, path string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pictures = append(s.pictures, picture(title, path))
}

func (s *Scores) add(line score) {
	Say("%s: %s, against %s: %s %s", line.what, line.spillway, line.against, line.result, line.verdict)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.scores = append(s.scores, line)
}

func (s *Scores) missed() bool {
	return slices.ContainsFunc(s.scores, func(line score) bool { return line.verdict == missed })
}

var heading = []string{"", "Spillway", "kube-apiserver", "ratio", "must", "aim", "reached"}

func (line score) cells() []string {
	return []string{line.what, line.spillway, line.against, line.result, line.limit.text(line.limit.Must),
		line.limit.text(line.limit.Aim), line.verdict}
}

// print writes the table for a terminal.
func (s *Scores) print(w io.Writer) {
	title := fmt.Sprintf("%s after %s", s.title, time.Since(s.began).Round(time.Second))
	fmt.Fprintf(w, "\n%s\n%s\n", title, strings.Repeat("-", len(title)))
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, strings.Join(heading, "\t"))
	for _, line := range s.scores {
		fmt.Fprintln(table, strings.Join(line.cells(), "\t"))
	}
	_ = table.Flush() // to stdout: an error could not be printed either
}

// markdown is the same table for a document.
func (s *Scores) markdown() string {
	var b strings.Builder
	row := func(cells []string) { fmt.Fprintf(&b, "| %s |\n", strings.Join(cells, " | ")) }
	row(heading)
	row(slices.Repeat([]string{"---"}, len(heading)))
	for _, line := range s.scores {
		row(line.cells())
	}
	for _, picture := range s.pictures {
		fmt.Fprintf(&b, "\n%s\n", picture)
	}
	return b.String()
}

// Measure is main of a program that compares. Like Main, it parses the flags, runs, prints what was
// measured and exits; a limit that was missed makes it fail, unless -report-only is set.
func Measure(title string, run func(ctx context.Context, s *Scores) error) {
	reportOnly := flag.Bool("report-only", false, "end well even if a figure is not what it must be")
	results := flag.String("results", "", "write the table into this file too, in place of the one between its markers")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	scores := &Scores{title: title, began: time.Now()}
	err := run(ctx, scores)
	stop()
	scores.print(os.Stdout)
	if err == nil && *results != "" {
		err = record(*results, cmp.Or(scores.Section, title), title, scores.began, scores.markdown())
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", title, err)
	}
	if err != nil || scores.missed() && !*reportOnly {
		os.Exit(1)
	}
}
