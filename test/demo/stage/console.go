package stage

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"
)

// Console prints what several sources say, line by line and never mixed within one.
type Console struct {
	started time.Time

	mu struct {
		sync.Mutex
		w      io.Writer
		width  func() int // columns of the terminal; nil: w is none
		steps  int
		status string // the line below all others; "": none
		shown  bool   // it is there, and has to be erased
	}
}

// NewConsole prints to w. A terminal also has a line for the status, below all others.
func NewConsole(w io.Writer) *Console {
	c := &Console{started: time.Now()}
	c.mu.w = w
	if f, ok := w.(*os.File); ok && isTerminal(f) {
		c.mu.width = func() int { return terminalWidth(f) }
	}
	return c
}

// Act begins an act.
func (c *Console) Act(text string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.printLocked("\n== " + text + "\n")
}

// Title begins the next step of the show.
func (c *Console) Title(text string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.steps++
	c.printLocked(fmt.Sprintf("\n%d. %s  [%.0fs]\n", c.mu.steps, text, time.Since(c.started).Seconds()))
}

// Line prints one line, or several, of the step's own.
func (c *Console) Line(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var text strings.Builder
	for line := range strings.Lines(fmt.Sprintf(format, args...)) {
		text.WriteString(strings.TrimRight("   "+line, " \n") + "\n")
	}
	c.printLocked(text.String())
}

// Write prints whole lines of another component, as they are.
func (c *Console) Write(p []byte) (int, error) {
	c.Line("%s", p)
	return len(p), nil
}

// HasStatus reports whether Status shows something.
func (c *Console) HasStatus() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.width != nil
}

// Status replaces the line below all others of a terminal; "" removes it. Elsewhere it prints
// nothing.
func (c *Console) Status(text string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.status = text
	c.printLocked("")
}

const eraseLine = "\r\x1b[K"

// printLocked prints whole lines above the status line.
func (c *Console) printLocked(lines string) {
	if c.mu.width == nil {
		_, _ = io.WriteString(c.mu.w, lines)
		return
	}
	erase := ""
	if c.mu.shown {
		erase = eraseLine
	}
	c.mu.shown = c.mu.status != ""
	_, _ = io.WriteString(c.mu.w, erase+lines+cut(c.mu.status, c.mu.width()-1))
}

// cut shortens text to a number of columns, so that it never wraps: what has wrapped is not erased.
func cut(text string, columns int) string {
	runes := []rune(text)
	if columns <= 0 || len(runes) <= columns {
		return text
	}
	return string(runes[:columns-1]) + "…"
}

func isTerminal(f *os.File) bool { return term.IsTerminal(int(f.Fd())) }

// terminalWidth is the number of columns, or 80 where the terminal does not know it.
func terminalWidth(f *os.File) int {
	width, _, err := term.GetSize(int(f.Fd()))
	if err != nil || width <= 1 {
		return 80
	}
	return width
}
