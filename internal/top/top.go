// Package top shows in a terminal what the status page of a running proxy shows.
//
// Invariant: text that comes over the network moves no cursor, whatever it contains; and the token
// is sent to no address but the given one.
package top

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"

	"spillway/internal/status"
)

const (
	// resourcesLimit is how many resources are shown: those with the most watches. It also bounds the
	// causes that are shown of resources that are not synced, and the rejected users.
	resourcesLimit = 6
	// factColumns is how wide the lines of facts are, where a fact is not wider itself.
	factColumns   = 80
	factSeparator = " · "
	// enterScreen leaves the user's screen as it is and cuts lines that are too long; leaveScreen
	// undoes that.
	enterScreen = "\x1b[?1049h\x1b[?7l\x1b[?25l"
	leaveScreen = "\x1b[?25h\x1b[?7h\x1b[?1049l"
)

// Options say what is shown.
type Options struct {
	Client   *Fetcher
	Interval time.Duration
	Order    status.Order
}

// Once writes one report as plain text.
func Once(ctx context.Context, o Options, out io.Writer) error {
	q := o.query()
	report, err := o.Client.Report(ctx, q)
	if err != nil {
		return err
	}
	return report.WriteText(out, q)
}

// Run draws reports on a terminal until ctx is done.
func Run(ctx context.Context, o Options, out io.Writer) error {
	report, failed := o.Client.Report(ctx, o.query())
	if failed != nil {
		return failed // in one line, and not on a screen
	}
	fmt.Fprint(out, enterScreen)
	defer fmt.Fprint(out, leaveScreen)
	for {
		if _, err := io.WriteString(out, draw(o.screen(report, failed))); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(o.Interval):
		}
		var next *status.Report
		if next, failed = o.Client.Report(ctx, o.query()); failed == nil {
			report = next
		}
	}
}

// draw puts each line where it belongs. A terminal puts lines below its last one there: so they are
// drawn from the last on, and it needs no figure of its size.
func draw(text string) string {
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	frame := fmt.Sprintf("\x1b[%d;1H\x1b[J", len(lines)+1)
	for i := len(lines); i > 0; i-- {
		frame += fmt.Sprintf("\x1b[%d;1H\x1b[K%s", i, lines[i-1])
	}
	return frame
}

// screen is what is drawn. failed is why there is no newer report.
func (o Options) screen(report *status.Report, failed error) string {
	var b strings.Builder
	fmt.Fprintf(&b, "spillway top  %s  %s\n", status.Printable(o.Client.Base.String()), report.Moment())
	if failed != nil {
		fmt.Fprintf(&b, "%s\n", status.Printable("not refreshed: "+failed.Error()))
	}
	fmt.Fprintf(&b, "%s\n\n", flow(report.Facts()))
	q := o.query()
	q.ResourceOrder = status.Order{Key: "watches"}
	writeSome(&b, report.Select(q).ResourceTable(q))
	if causes := report.CauseTable(); len(causes.Rows) > 0 {
		b.WriteString("\nNot synced:\n")
		writeSome(&b, causes)
	}
	if recent := report.RecentRejections(); len(recent.Rows) > 0 {
		b.WriteString("\nRejected last:\n")
		writeSome(&b, recent)
	}
	fmt.Fprintf(&b, "\n%s\n", report.Shown())
	report.WatchTable(q).WriteText(&b)
	return b.String()
}

// writeSome writes the first resourcesLimit rows of a table, and how many more there are.
func writeSome(b *strings.Builder, t status.Table) {
	hidden := max(0, len(t.Rows)-resourcesLimit)
	t.Rows = t.Rows[:len(t.Rows)-hidden]
	t.WriteText(b)
	if hidden > 0 {
		fmt.Fprintf(b, "and %d more\n", hidden)
	}
}

// flow puts as many facts on a line as factColumns has room for.
func flow(facts []status.Fact) string {
	var lines []string
	for _, f := range facts {
		text := f.Name + " " + f.Text
		last := len(lines) - 1
		if last >= 0 && utf8.RuneCountInString(lines[last]+factSeparator+text) <= factColumns {
			lines[last] += factSeparator + text
		} else {
			lines = append(lines, text)
		}
	}
	return strings.Join(lines, "\n")
}

func (o Options) query() status.Query {
	q := status.DefaultQuery()
	q.WatchOrder = o.Order
	return q
}
