package top

import (
	"context"
	"time"

	tea "charm.land/bubbletea/v2"

	"spillway/internal/status"
)

// model is what is on the screen. Bubble Tea calls it, one call after another.
type model struct {
	ctx    context.Context
	opts   Options
	query  status.Query
	report *status.Report
	failed error // why there is no newer report; nil: there is no reason
	paused bool
	asking int // questions under way
	first  int // the first watch on the screen
	width  int
	height int
}

// answered is what came of a question, tick that it is time for another one.
type answered struct {
	query  status.Query
	report *status.Report
	err    error
}

type tick struct{}

func newModel(ctx context.Context, o Options, first *status.Report) *model {
	return &model{ctx: ctx, opts: o, query: o.query(), report: first, width: 80, height: 24}
}

// Init implements tea.Model.
func (m *model) Init() tea.Cmd { return m.later() }

// later waits for the next question.
func (m *model) later() tea.Cmd {
	return tea.Tick(m.opts.Interval, func(time.Time) tea.Msg { return tick{} })
}

// ask asks for a report.
func (m *model) ask() tea.Cmd {
	m.asking++
	query := m.query
	return func() tea.Msg {
		report, err := m.opts.Client.Report(m.ctx, query)
		return answered{query: query, report: report, err: err}
	}
}

// Update implements tea.Model.
func (m *model) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.width, m.height = msg.Width, msg.Height
	case tea.KeyPressMsg:
		return m, m.key(msg.String())
	case tick:
		if m.paused || m.asking > 0 {
			return m, m.later()
		}
		return m, tea.Batch(m.ask(), m.later())
	case answered:
		m.asking--
		if m.failed = msg.err; msg.err == nil && msg.query == m.query && !m.paused {
			m.report = msg.report
		}
	}
	return m, nil
}

// key does what a key stands for.
func (m *model) key(key string) tea.Cmd {
	rows := max(1, m.height-m.above())
	switch key {
	case "q", "ctrl+c", "esc":
		return tea.Quit
	case "p", "space":
		m.paused = !m.paused
	case "left", "<":
		return m.sort(-1)
	case "right", ">", "s":
		return m.sort(1)
	case "r":
		m.query.Watches.Reverse = !m.query.Watches.Reverse
		return m.reorder()
	case "up", "k":
		m.first--
	case "down", "j":
		m.first++
	case "pgup":
		m.first -= rows
	case "pgdown":
		m.first += rows
	case "home", "g":
		m.first = 0
	case "end", "G":
		m.first = len(m.report.Watches.Items)
	}
	m.first = max(0, min(m.first, len(m.report.Watches.Items)-rows))
	return nil
}

// sort sorts by the next column, or the one before.
func (m *model) sort(by int) tea.Cmd {
	keys := status.WatchKeys()
	for i, key := range keys {
		if key == m.query.Watches.Key {
			m.query.Watches = status.Order{Key: keys[(i+by+len(keys))%len(keys)]}
			break
		}
	}
	return m.reorder()
}

// reorder shows what there is in another order at once, and asks for those that are first in it.
func (m *model) reorder() tea.Cmd {
	m.first = 0
	m.report = m.report.Select(m.query)
	if m.paused {
		return nil
	}
	return m.ask()
}
