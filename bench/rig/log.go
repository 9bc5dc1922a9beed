package rig

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
)

// Log collects what a process writes to its stderr. It is the io.Writer to give to it.
type Log struct {
	mu struct {
		sync.Mutex
		partial []byte
		lines   []Line
	}
}

// Line is one line of a log. Message and Level are empty if it is not JSON.
type Line struct {
	Text    string
	Message string
	Level   string
	fields  map[string]any
}

func newLog() *Log { return &Log{} }

// Write implements io.Writer.
func (l *Log) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.partial = append(l.mu.partial, b...)
	for {
		line, rest, found := bytes.Cut(l.mu.partial, []byte("\n"))
		if !found {
			return len(b), nil
		}
		l.mu.lines = append(l.mu.lines, parseLine(string(line)))
		l.mu.partial = rest
	}
}

func parseLine(text string) Line {
	line := Line{Text: text}
	if json.Unmarshal([]byte(text), &line.fields) == nil {
		line.Message, line.Level = line.Field("msg"), line.Field("level")
	}
	return line
}

// Field is a field of a JSON line as text, "" if it has none of that name.
func (l Line) Field(name string) string {
	if v, ok := l.fields[name]; ok {
		return fmt.Sprint(v)
	}
	return ""
}

// Lines are the complete lines so far.
func (l *Log) Lines() []Line {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.lines[:len(l.mu.lines):len(l.mu.lines)]
}

// With are the lines with a message.
func (l *Log) With(message string) []Line {
	var out []Line
	for _, line := range l.Lines() {
		if line.Message == message {
			out = append(out, line)
		}
	}
	return out
}

// Count is how many lines contain a text.
func (l *Log) Count(text string) int {
	n := 0
	for _, line := range l.Lines() {
		if strings.Contains(line.Text, text) {
			n++
		}
	}
	return n
}

// Levels counts lines by level.
func (l *Log) Levels() map[string]int {
	levels := map[string]int{}
	for _, line := range l.Lines() {
		levels[line.Level]++
	}
	return levels
}

// String is the whole log.
func (l *Log) String() string {
	var b strings.Builder
	for _, line := range l.Lines() {
		b.WriteString(line.Text + "\n")
	}
	return b.String()
}
