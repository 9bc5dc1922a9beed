package logging

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
)

// blockedWriter blocks each write until it is released.
type blockedWriter struct {
	released chan struct{}
	bytes.Buffer
}

func newBlockedWriter() *blockedWriter { return &blockedWriter{released: make(chan struct{})} }

func (w *blockedWriter) Write(p []byte) (int, error) {
	<-w.released
	return w.Buffer.Write(p)
}

// entry is what the tests read of a line.
type entry struct {
	Msg   string
	N     int
	Lines int
	Since time.Time
}

func entriesOf(t *testing.T, out *bytes.Buffer) []entry {
	t.Helper()
	var all []entry
	for line := range strings.Lines(out.String()) {
		var e entry
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatalf("%v in %q", err, line)
		}
		all = append(all, e)
	}
	return all
}

// While the output is blocked no call waits for longer than blockedTimeout, all of them together
// included; when it is read again, the log is in order and tells how much of it is missing.
func TestBlockedOutputDropsLinesAndSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := newBlockedWriter()
		sink := NewOutput(out)
		log := New("info", "json", sink)
		began, filler := time.Now(), strings.Repeat("x", logTextBytes)
		const lines = 4 * queueBytes / logTextBytes
		for n := range lines {
			log.Info("m", zap.Int("n", n), zap.String("filler", filler))
		}
		if took := time.Since(began); took > blockedTimeout {
			t.Errorf("%d calls took %v", lines, took)
		}
		if len(sink.pending) > queueBytes {
			t.Errorf("%d bytes wait", len(sink.pending))
		}
		dropped := sink.Dropped()
		if dropped == 0 {
			t.Fatal("nothing was dropped")
		}
		if err := log.Sync(); err == nil || time.Since(began) > blockedTimeout+flushTimeout {
			t.Errorf("Sync returned %v after %v", err, time.Since(began))
		}
		close(out.released)
		synctest.Wait()
		log.Info("m", zap.Int("n", lines))
		if err := log.Sync(); err != nil {
			t.Fatal(err)
		}
		all := entriesOf(t, &out.Buffer)
		kept := len(all) - 2
		for n, e := range all[:kept] {
			if e.N != n {
				t.Fatalf("line %d is number %d", n, e.N)
			}
		}
		notice := all[kept]
		if notice.Lines != lines-kept || uint64(notice.Lines) != dropped || !notice.Since.Equal(began.Add(blockedTimeout)) {
			t.Errorf("%+v, of %d lines %d were written, %d dropped since %v", notice, lines, kept, dropped, began)
		}
		if last := all[kept+1]; last.N != lines {
			t.Errorf("then came %+v", last)
		}
	})
}

// An output that takes a little at a time loses nothing, as long as it moves.
func TestSlowOutputLosesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		sink := NewOutput(writerFunc(func(p []byte) (int, error) {
			time.Sleep(blockedTimeout / 4)
			return out.Write(p)
		}))
		log := New("info", "json", sink)
		const lines = 2 * queueBytes / logTextBytes
		for n := range lines {
			log.Info("m", zap.Int("n", n), zap.String("filler", strings.Repeat("x", logTextBytes)))
		}
		for log.Sync() != nil { // which ends at flushLimit
		}
		all := entriesOf(t, &out)
		if len(all) != lines || sink.Dropped() != 0 {
			t.Errorf("%d lines of %d; %d dropped", len(all), lines, sink.Dropped())
		}
	})
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// Every line of many goroutines is in a pipe that is read, those of each in their order, and the
// last ones once Sync has returned.
func TestHealthyOutputLosesNothing(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	read := make(chan []byte)
	go func() {
		text, _ := io.ReadAll(r)
		read <- text
	}()
	sink := NewOutput(w)
	log := New("info", "json", sink)
	const goroutines, lines = 8, 2000
	var all sync.WaitGroup
	for g := range goroutines {
		all.Go(func() {
			for n := range lines {
				log.Info(fmt.Sprint(g), zap.Int("n", n))
			}
		})
	}
	all.Wait()
	if err := log.Sync(); err != nil {
		t.Fatal(err)
	}
	w.Close()
	next := map[string]int{}
	for _, e := range entriesOf(t, bytes.NewBuffer(<-read)) {
		if e.N != next[e.Msg] {
			t.Fatalf("goroutine %s: line %d, want %d", e.Msg, e.N, next[e.Msg])
		}
		next[e.Msg]++
	}
	for g := range goroutines {
		if next[fmt.Sprint(g)] != lines {
			t.Errorf("goroutine %d: %d lines", g, next[fmt.Sprint(g)])
		}
	}
}

// A line that is longer than a write or than the queue is written whole.
func TestLongLinesAreWhole(t *testing.T) {
	var out bytes.Buffer
	sink := NewOutput(&out)
	var want []byte
	for _, size := range []int{1, writeBytes - 1, writeBytes, writeBytes + 1, 3*writeBytes + 7, queueBytes + 1, 5} {
		line := append(bytes.Repeat([]byte{'x'}, size), '\n')
		want = append(want, line...)
		_, _ = sink.Write(line)
		if err := sink.Sync(); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(out.Bytes(), want) {
		t.Errorf("%d bytes of %d", out.Len(), len(want))
	}
}

// Progress tells a write that does not end from an output without work.
func TestProgressOfABlockedOutput(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := newBlockedWriter()
		sink := NewOutput(out)
		if _, working := sink.Progress(); working {
			t.Error("works on nothing")
		}
		_, _ = sink.Write([]byte("x\n"))
		synctest.Wait()
		if writes, working := sink.Progress(); !working || writes != 0 {
			t.Errorf("%d writes, working: %v", writes, working)
		}
		close(out.released)
		synctest.Wait()
		if writes, working := sink.Progress(); working || writes != 1 {
			t.Errorf("%d writes, working: %v", writes, working)
		}
	})
}
