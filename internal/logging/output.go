package logging

import (
	"bytes"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
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
	notice  func(omission) []byte // the line that reports an omission; nil: none does
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
	if output, ok := w.(*Output); ok {
		return output
	}
	return NewOutput(w)
}

// Write implements io.Writer for one or more whole lines. It never fails: the log is the place for
// an error of the output.
func (o *Output) Write(lines []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.awaitRoomLocked(len(lines)) {
		o.dropLocked()
		return len(lines), nil
	}
	o.pending = append(o.pending, lines...)
	if o.began.IsZero() {
		go o.run(o.beginLocked())
	}
	return len(lines), nil
}

// awaitRoomLocked reports whether there is room for so many bytes, as soon as there is. Once a line
// was dropped there is none for those behind it until the line that says so is written.
func (o *Output) awaitRoomLocked(size int) bool {
	deadline := time.Now().Add(blockedTimeout)
	for o.omitted.lines == 0 {
		if len(o.pending) == 0 || len(o.pending)+size <= queueBytes {
			return true
		}
		now := time.Now()
		left := min(deadline.Sub(now), o.began.Add(blockedTimeout).Sub(now))
		if left <= 0 {
			return false
		}
		o.awaitWriteLocked(left)
	}
	return false
}

func (o *Output) dropLocked() {
	if o.omitted.lines == 0 {
		o.omitted.since = time.Now()
	}
	o.omitted.lines++
	o.dropped++
}

// awaitWriteLocked gives up the lock until the write under way has ended, or for so long.
func (o *Output) awaitWriteLocked(most time.Duration) {
	ended := o.ended
	o.mu.Unlock()
	defer o.mu.Lock()
	timer := time.NewTimer(most)
	defer timer.Stop()
	select {
	case <-ended:
	case <-timer.C:
	}
}

// run writes until nothing waits.
func (o *Output) run(lines []byte) {
	for len(lines) > 0 {
		_, _ = o.out.Write(lines)
		lines = o.next()
	}
}

// next ends a write, and begins the next one unless nothing waits.
func (o *Output) next() []byte {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.writes++
	close(o.ended)
	if len(o.pending) == 0 { // and so nothing is omitted
		o.began, o.ended = time.Time{}, nil
		return nil
	}
	return o.beginLocked()
}

// beginLocked begins a write of the returned lines.
func (o *Output) beginLocked() (lines []byte) {
	o.began, o.ended = time.Now(), make(chan struct{})
	lines, o.pending = split(o.pending)
	if len(o.pending) == 0 && o.omitted.lines > 0 {
		if o.notice != nil {
			lines = append(lines, o.notice(o.omitted)...)
		}
		o.omitted = omission{}
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
func (o *Output) Sync() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	deadline := time.Now().Add(flushLimit)
	for !o.began.IsZero() {
		before := o.writes
		o.awaitWriteLocked(min(flushTimeout, time.Until(deadline)))
		if o.writes == before {
			return errBlocked
		}
	}
	return nil
}

// Dropped is how many lines were dropped since the start.
func (o *Output) Dropped() uint64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.dropped
}

// Progress is how many writes to the output have ended, and whether one is under way.
func (o *Output) Progress() (writes uint64, working bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.writes, !o.began.IsZero()
}

// reportOmissions has dropped lines reported by a line in the encoder's format.
func (o *Output) reportOmissions(encoder zapcore.Encoder) {
	encoder = encoder.Clone()
	o.mu.Lock()
	defer o.mu.Unlock()
	o.notice = func(omitted omission) []byte {
		line, err := encoder.EncodeEntry(
			zapcore.Entry{Level: zapcore.WarnLevel, Time: time.Now(),
				Message: "log lines were dropped: their output was blocked"},
			[]zapcore.Field{zap.Int("lines", omitted.lines), zap.Time("since", omitted.since)})
		if err != nil {
			return nil // of two values that can be encoded
		}
		defer line.Free()
		return bytes.Clone(line.Bytes())
	}
}

// NewCollector counts the lines that o drops.
func NewCollector(o *Output) prometheus.Collector {
	return prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "spillway_log_lines_dropped_total",
		Help: "Log lines that were dropped because stderr was not read in time. It should stay 0.",
	}, func() float64 { return float64(o.Dropped()) })
}
