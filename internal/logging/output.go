package logging

import (
	"bytes"
	"errors"
	"io"
	"sync"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

const (
	// queueBytes is how much of the log waits to be written at most. A longer line is accepted if
	// nothing else waits.
	queueBytes = 1 << 20
	// writeBytes is how much one write has at most, unless a line is longer.
	writeBytes = 64 << 10
	// blockedTimeout is how long a write may take until the output is called blocked, and how long a
	// line waits for room in the queue. An output that is merely slower than a burst loses nothing.
	blockedTimeout = 100 * time.Millisecond
	// flushTimeout is how long Sync waits for one write to end, and flushLimit how long in all.
	flushTimeout = time.Second
	flushLimit   = 5 * time.Second
)

// Output is where the process writes its log: a bounded queue, and at most one goroutine that
// writes what is in it. A goroutine that logs never writes itself: the output may be a pipe whose
// reader stands still, and a write to it then blocks for as long as that lasts.
//
// Invariants: lines are written in the order in which Write accepted them. Lines are dropped only
// while the queue is full; they are counted, and a line in their place says how many they were and
// since when. Write waits for blockedTimeout at most, and not at all while the output is blocked.
//
// Not zapcore.BufferedWriteSyncer: it writes under its lock, in the goroutine that fills its
// buffer.
type Output struct {
	out io.Writer // static

	mu      sync.Mutex
	pending []byte                // whole lines
	began   time.Time             // of the write under way; zero: there is none
	ended   chan struct{}         // closed when that write has ended
	writes  uint64                // that have ended
	omitted omission              // of lines that would follow pending
	notice  func(omission) []byte // the line that tells of an omission; nil: none does
	dropped uint64                // lines since the start
}

// omission is lines that were dropped.
type omission struct {
	lines int
	since time.Time // when the first of them was
}

// NewOutput returns an Output that writes to out. It has no goroutine while nothing waits to be
// written.
func NewOutput(out io.Writer) *Output { return &Output{out: out} }

// asOutput is w itself if it is an Output, so that all that goes to one output has one order.
func asOutput(w io.Writer) *Output {
	if s, ok := w.(*Output); ok {
		return s
	}
	return NewOutput(w)
}

// Write implements io.Writer for one or more whole lines. It never fails: the log is the place for
// an error of the output.
func (s *Output) Write(lines []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.awaitRoomLocked(len(lines)) {
		s.dropLocked()
		return len(lines), nil
	}
	s.pending = append(s.pending, lines...)
	if s.began.IsZero() {
		go s.run(s.beginLocked())
	}
	return len(lines), nil
}

// awaitRoomLocked reports whether there is room for so many bytes, as soon as there is. Once a line
// was dropped there is none for those behind it until the line that says so is written.
func (s *Output) awaitRoomLocked(size int) bool {
	deadline := time.Now().Add(blockedTimeout)
	for s.omitted.lines == 0 {
		if len(s.pending) == 0 || len(s.pending)+size <= queueBytes {
			return true
		}
		now := time.Now()
		left := min(deadline.Sub(now), s.began.Add(blockedTimeout).Sub(now))
		if left <= 0 {
			return false
		}
		s.awaitWriteLocked(left)
	}
	return false
}

func (s *Output) dropLocked() {
	if s.omitted.lines == 0 {
		s.omitted.since = time.Now()
	}
	s.omitted.lines++
	s.dropped++
}

// awaitWriteLocked gives up the lock until the write under way has ended, or for so long.
func (s *Output) awaitWriteLocked(most time.Duration) {
	ended := s.ended
	s.mu.Unlock()
	defer s.mu.Lock()
	timer := time.NewTimer(most)
	defer timer.Stop()
	select {
	case <-ended:
	case <-timer.C:
	}
}

// run writes until nothing waits.
func (s *Output) run(lines []byte) {
	for len(lines) > 0 {
		_, _ = s.out.Write(lines)
		lines = s.next()
	}
}

// next ends a write, and begins the next one unless nothing waits.
func (s *Output) next() []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.writes++
	close(s.ended)
	if len(s.pending) == 0 { // and so nothing is omitted
		s.began, s.ended = time.Time{}, nil
		return nil
	}
	return s.beginLocked()
}

// beginLocked begins a write of the returned lines.
func (s *Output) beginLocked() (lines []byte) {
	s.began, s.ended = time.Now(), make(chan struct{})
	lines, s.pending = split(s.pending)
	if len(s.pending) == 0 && s.omitted.lines > 0 {
		if s.notice != nil {
			lines = append(lines, s.notice(s.omitted)...)
		}
		s.omitted = omission{}
	}
	return lines
}

// split returns whole lines of writeBytes at most, of which there is at least one, and the rest.
func split(lines []byte) (first, rest []byte) {
	if len(lines) <= writeBytes {
		return lines, nil
	}
	end := bytes.LastIndexByte(lines[:writeBytes], '\n') + 1
	if end == 0 {
		end = writeBytes + bytes.IndexByte(lines[writeBytes:], '\n') + 1
	}
	return lines[:end], lines[end:]
}

var errBlocked = errors.New("the output of the log is blocked: its last lines are not written")

// Sync waits until the lines that were accepted until now are written, as long as each write ends
// within flushTimeout and all of them within flushLimit. It does not sync a file.
func (s *Output) Sync() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	deadline := time.Now().Add(flushLimit)
	for !s.began.IsZero() {
		before := s.writes
		s.awaitWriteLocked(min(flushTimeout, time.Until(deadline)))
		if s.writes == before {
			return errBlocked
		}
	}
	return nil
}

// Dropped is how many lines were dropped since the start.
func (s *Output) Dropped() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.dropped
}

// Progress is how many writes to the output have ended, and whether one is under way.
func (s *Output) Progress() (writes uint64, working bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.writes, !s.began.IsZero()
}

// tellOmissions has dropped lines reported by a line in the encoder's format.
func (s *Output) tellOmissions(encoder zapcore.Encoder) {
	encoder = encoder.Clone()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.notice = func(o omission) []byte {
		line, err := encoder.EncodeEntry(
			zapcore.Entry{Level: zapcore.WarnLevel, Time: time.Now(),
				Message: "log lines were dropped: their output was blocked"},
			[]zapcore.Field{zap.Int("lines", o.lines), zap.Time("since", o.since)})
		if err != nil {
			return nil // of two values that can be encoded
		}
		defer line.Free()
		return bytes.Clone(line.Bytes())
	}
}
