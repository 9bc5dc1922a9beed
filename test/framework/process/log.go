package process

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
)

// Log keeps what a child wrote.
type Log struct{ File *os.File }

// NewLog is a file of the test's.
func NewLog(t *testing.T) *Log {
	t.Helper()
	file, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { file.Close() })
	return &Log{file}
}

// Text is all of it so far.
func (l *Log) Text() []byte {
	text, err := os.ReadFile(l.File.Name())
	if err != nil {
		return []byte(err.Error())
	}
	return text
}

// Show prints the end of the log.
func (l *Log) Show(t *testing.T) {
	text := l.Text()
	t.Logf("the end of its log:\n%s", text[max(0, len(text)-4<<10):])
}

// Addresses are where a proxy serves, as host:port; empty where it does not.
type Addresses struct{ Plain, TLS, Metrics string }

// Addresses finds out where a proxy serves: it says so in its log.
func (l *Log) Addresses() (a Addresses) {
	for line := range bytes.Lines(l.Text()) {
		var entry struct{ Msg, Address string }
		if json.Unmarshal(line, &entry) != nil {
			continue
		}
		switch entry.Msg {
		case "serving plain HTTP":
			a.Plain = entry.Address
		case "serving HTTPS":
			a.TLS = entry.Address
		case "serving health and metrics", "serving health":
			a.Metrics = entry.Address
		}
	}
	return a
}
