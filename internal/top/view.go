package top

import (
	"fmt"
	"strings"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	"spillway/internal/status"
)

const (
	bold    = "\x1b[1m"
	faint   = "\x1b[2m"
	inverse = "\x1b[7m"
	red     = "\x1b[31;1m"
	plain   = "\x1b[0m"

	// resourcesMost is how many resources are shown: those with the most watches.
	resourcesMost = 6
	// cellMost is how wide a column of words may be.
	cellMost = 44
	help     = "q quit  p pause  ←→ sort by  r reverse  ↑↓ scroll"
)

// View implements tea.Model.
func (m *model) View() tea.View {
	view := tea.NewView(strings.Join(m.lines(), "\n"))
	view.AltScreen = true
	view.WindowTitle = "spillway top"
	return view
}

// lines are the screen, line by line.
func (m *model) lines() []string {
	lines := m.head()
	table := m.report.WatchTable(m.query)
	room := max(0, m.height-len(lines)-2)
	rows := table.Rows[min(m.first, len(table.Rows)):]
	table.Rows = rows[:min(room, len(rows))]
	lines = append(lines, m.grid(table)...)
	for len(lines) < m.height-1 {
		lines = append(lines, "")
	}
	lines = append(lines, faint+m.clip(help)+plain)
	return lines[:min(len(lines), m.height)]
}

// above is how many lines stand above and below the watches themselves.
func (m *model) above() int { return len(m.head()) + 2 }

// head is what stands above the watches.
func (m *model) head() []string {
	title := fmt.Sprintf("spillway top  %s  %s", status.Printable(m.opts.Client.Base.String()), m.report.Moment())
	lines := []string{bold + m.clip(title) + plain}
	switch {
	case m.failed != nil:
		lines = append(lines, red+m.clip(status.Printable("not refreshed: "+m.failed.Error()))+plain)
	case m.paused:
		lines = append(lines, inverse+m.clip("paused")+plain)
	default:
		lines = append(lines, "")
	}
	lines = append(lines, m.facts()...)
	resources := *m.report
	order := status.Order{Key: "watches"}
	resources.Resources = m.report.Select(
		status.Query{Resources: order, Watches: m.query.Watches, Limit: status.LimitMost}).Resources
	hidden := max(0, len(resources.Resources)-resourcesMost)
	resources.Resources = resources.Resources[:len(resources.Resources)-hidden]
	lines = append(append(lines, ""), m.grid(resources.ResourceTable(status.Query{Resources: order}))...)
	if hidden > 0 {
		lines = append(lines, faint+m.clip(fmt.Sprintf("and %d more", hidden))+plain)
	}
	return append(lines, "", faint+m.clip(m.report.Shown())+plain)
}

// facts are the report's, as many on a line as fit.
func (m *model) facts() []string {
	var lines []string
	line, used := "", 0
	for _, f := range m.report.Facts() {
		text := f.Name + " " + f.Text
		if width := ansi.StringWidth(text); used > 0 && used+3+width > m.width {
			lines = append(lines, line)
			line, used = "", 0
		}
		if used > 0 {
			line, used = line+" · ", used+3
		}
		text = m.clip(text)
		used += ansi.StringWidth(text)
		if f.Alert {
			text = red + text + plain
		}
		line += text
	}
	return append(lines, line)
}

// grid is a table, each column as wide as what is in it, as many columns as fit.
func (m *model) grid(t status.Table) []string {
	widths := make([]int, len(t.Columns))
	for i, c := range t.Columns {
		widths[i] = ansi.StringWidth(c.Name) + 1 // and how it is sorted
		for _, row := range t.Rows {
			widths[i] = max(widths[i], ansi.StringWidth(row[i].Text))
		}
		widths[i] = min(widths[i], cellMost)
	}
	var head strings.Builder
	lines := make([]string, 0, len(t.Rows)+1)
	left := m.width
	columns := 0
	for i, c := range t.Columns {
		width := min(widths[i], left)
		if width < widths[i] && width < 8 {
			break // the rest of a word is no use
		}
		widths[i], columns = width, i+1
		left -= width + 2
		name := c.Name
		if c.Sorted {
			name += arrow(c.Ascending)
		}
		style := faint
		if c.Sorted {
			style = inverse
		}
		head.WriteString(style + align(name, width, c.Number) + plain + "  ")
		if left <= 0 {
			break
		}
	}
	lines = append(lines, head.String())
	for _, row := range t.Rows {
		var line strings.Builder
		for i, cell := range row[:columns] {
			text := align(cell.Text, widths[i], t.Columns[i].Number)
			if cell.Alert {
				text = red + text + plain
			}
			line.WriteString(text + "  ")
		}
		lines = append(lines, ansi.Truncate(line.String(), m.width, ""))
	}
	lines[0] = ansi.Truncate(lines[0], m.width, "")
	return lines
}

func arrow(ascending bool) string {
	if ascending {
		return "↑"
	}
	return "↓"
}

// align makes text as wide as a column.
func align(text string, width int, right bool) string {
	text = ansi.Truncate(text, width, "…")
	pad := strings.Repeat(" ", max(0, width-ansi.StringWidth(text)))
	if right {
		return pad + text
	}
	return text + pad
}

func (m *model) clip(text string) string { return ansi.Truncate(text, m.width, "…") }
