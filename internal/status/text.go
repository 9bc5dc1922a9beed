package status

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// WriteText writes the report as plain text, one line for each watch.
func (r *Report) WriteText(w io.Writer, q Query) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n", r.Moment())
	for _, f := range r.Facts() {
		fmt.Fprintf(&b, "%-12s %s\n", f.Name, f.Text)
	}
	if ends := r.EndFacts(); len(ends) > 0 {
		b.WriteString("Ended       ")
		for _, f := range ends {
			fmt.Fprintf(&b, " %s %s", f.Text, f.Name)
		}
		b.WriteString("\n")
	}
	b.WriteString("\n")
	r.ResourceTable(q).WriteText(&b)
	if causes := r.CauseTable(); len(causes.Rows) > 0 {
		b.WriteString("\nNot synced:\n")
		causes.WriteText(&b)
	}
	fmt.Fprintf(&b, "\n%s\n", r.Shown())
	if len(r.Watches.Items) > 0 {
		b.WriteString("\n")
		r.WatchTable(q).WriteText(&b)
	}
	if len(r.Evictions) > 0 {
		b.WriteString("\nEvicted last:\n")
		r.EvictionTable().WriteText(&b)
	}
	if len(r.Rejections) > 0 {
		b.WriteString("\nRejected last:\n")
		r.RejectionTable().WriteText(&b)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// WriteText writes the table with columns as wide as they must be. Text in them has no tabs: it is
// Printable.
func (t Table) WriteText(b *strings.Builder) {
	rows := make([][]string, len(t.Rows)+1)
	for _, c := range t.Columns {
		rows[0] = append(rows[0], strings.ToUpper(c.Name))
	}
	for i, cells := range t.Rows {
		for _, c := range cells {
			rows[i+1] = append(rows[i+1], c.Text)
		}
	}
	widths := make([]int, len(t.Columns))
	for _, row := range rows {
		for i, text := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(text))
		}
	}
	for _, row := range rows {
		var line strings.Builder
		for i, text := range row {
			width := widths[i]
			if !t.Columns[i].Number {
				width = -width // which pads on the right
			}
			fmt.Fprintf(&line, "%*s  ", width, text)
		}
		b.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
}
