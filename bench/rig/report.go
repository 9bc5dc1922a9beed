package rig

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"text/tabwriter"
	"time"
)

// Report is the table that a program ends with. Rows may be added from any goroutine.
type Report struct {
	title string
	began time.Time

	mu   sync.Mutex
	rows []row
}

type row struct{ verdict, what, value string }

const (
	passed = "PASS"
	broken = "FAIL"
)

// Check adds a row that passes or fails.
func (r *Report) Check(ok bool, what, format string, args ...any) {
	verdict := broken
	if ok {
		verdict = passed
	}
	r.add(verdict, what, fmt.Sprintf(format, args...))
}

// CheckError adds a row that passes if there is no error.
func (r *Report) CheckError(err error, what, format string, args ...any) {
	if err != nil {
		r.Check(false, what, "%v", err)
		return
	}
	r.Check(true, what, format, args...)
}

// Note adds a row that only informs.
func (r *Report) Note(what, format string, args ...any) {
	r.add("", what, fmt.Sprintf(format, args...))
}

func (r *Report) add(verdict, what, value string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.rows = append(r.rows, row{verdict, what, strings.ReplaceAll(value, "\n", " ⏎ ")})
}

func (r *Report) failed() bool {
	checks := 0
	for _, row := range r.rows {
		if row.verdict == broken {
			return true
		}
		if row.verdict == passed {
			checks++
		}
	}
	return checks == 0
}

// Record writes all rows into a document, between the markers that bear the program's name, and a
// drawing below.
func (r *Report) Record(path, title, drawing string) error {
	var b strings.Builder
	b.WriteString("|  |  |  |\n| --- | --- | --- |\n")
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, row := range r.rows {
		fmt.Fprintf(&b, "| %s | %s | %s |\n", row.what, row.value, row.verdict)
	}
	fmt.Fprintf(&b, "\n%s\n", picture(title, drawing))
	return record(path, r.title, r.title, r.began, b.String())
}

func (r *Report) print(w io.Writer) {
	verdict := passed
	if r.failed() {
		verdict = broken
	}
	title := fmt.Sprintf("%s: %s after %s", r.title, verdict, time.Since(r.began).Round(time.Second))
	fmt.Fprintf(w, "\n%s\n%s\n", title, strings.Repeat("-", len(title)))
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, row := range r.rows {
		fmt.Fprintf(table, "%s\t%s\t%s\n", row.verdict, row.what, row.value)
	}
	_ = table.Flush() // to stdout: an error could not be printed either
}
