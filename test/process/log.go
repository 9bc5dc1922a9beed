package process

import (
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
