package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"
)

// console prints what several sources say, line by line and never mixed within one.
type console struct {
	started time.Time

	mu struct {
		sync.Mutex
		w     io.Writer
		steps int
	}
}

func newConsole(w io.Writer) *console {
	c := &console{started: time.Now()}
	c.mu.w = w
	return c
}

// title begins the next step of the show.
func (c *console) title(text string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.steps++
	fmt.Fprintf(c.mu.w, "\n%d. %s  [%.0fs]\n", c.mu.steps, text, time.Since(c.started).Seconds())
}

// line prints one line, or several, of the step's own.
func (c *console) line(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for line := range strings.Lines(fmt.Sprintf(format, args...)) {
		fmt.Fprintln(c.mu.w, strings.TrimRight("   "+line, " \n"))
	}
}

// Write prints whole lines of another component, as they are.
func (c *console) Write(p []byte) (int, error) {
	c.line("%s", p)
	return len(p), nil
}

// feed prints what r yields, each line behind label, and hands it on. It returns when r ends.
func (c *console) feed(r io.Reader, label string, lines chan<- string) {
	defer close(lines)
	scanner := bufio.NewScanner(r)
	for scanner.Scan() {
		c.line("%s │ %s", label, scanner.Text())
		lines <- scanner.Text()
	}
}

// expect takes lines until n of them hold text.
func expect(ctx context.Context, lines <-chan string, text string, n int) error {
	for seen := 0; seen < n; {
		select {
		case line, open := <-lines:
			if !open {
				return fmt.Errorf("it ended before it had printed %q %d times", text, n)
			}
			if strings.Contains(line, text) {
				seen++
			}
		case <-ctx.Done():
			return fmt.Errorf("it printed %q %d times instead of %d: %w", text, seen, n, context.Cause(ctx))
		}
	}
	return nil
}

func isTerminal(f *os.File) bool { return term.IsTerminal(int(f.Fd())) }
