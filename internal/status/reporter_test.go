package status

import (
	"context"
	"errors"
	"testing"
	"time"
)

// fakeReports gathers reports of one watch, at a time and with bytes that the test sets.
type fakeReports struct {
	now      time.Time
	bytes    int64
	gathered int
	err      error
}

func (c *fakeReports) gather(context.Context) (*Report, error) {
	c.gathered++
	return &Report{At: c.now, Watches: Watches{Total: 1, Items: []*Watch{{ID: 7, Bytes: c.bytes, AgeSeconds: 10}}}}, c.err
}

func TestReporter(t *testing.T) {
	c := &fakeReports{now: noon, bytes: 1000}
	r := NewReporter(c.gather)
	defer r.Close()
	r.now = func() time.Time { return c.now }
	f := func(wantGathered int, wantRate, wantOver float64) {
		t.Helper()
		report, err := r.Report(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		w := report.Watches
		if c.gathered != wantGathered || w.Items[0].BytesPerSecond != wantRate || w.BytesPerSecond != wantRate ||
			w.RateSeconds != wantOver {
			t.Errorf("gathered %d times, %.1f B/s, %.1f B/s in all over %.1f s; want %d, %.1f, %.1f", c.gathered,
				w.Items[0].BytesPerSecond, w.BytesPerSecond,
				w.RateSeconds, wantGathered, wantRate, wantOver)
		}
	}
	f(1, 100, 0) // since it began
	c.now, c.bytes = noon.Add(999*time.Millisecond), 5000
	f(1, 100, 0) // the same report
	c.now = noon.Add(4 * time.Second)
	f(2, 1000, 4)
	c.now = noon.Add(6 * time.Second)
	f(3, 0, 2)

	c.err, c.now = errors.New("stopping"), noon.Add(10*time.Second)
	if _, err := r.Report(t.Context()); err == nil {
		t.Error("what could not be gathered was reported")
	}
	c.err = nil
	r.drop() // as after a while without requests
	f(5, 500, 0)
}

// A request during the making of a report waits for that report.
func TestReporterMakesOneForAll(t *testing.T) {
	gathered := make(chan struct{}, 10)
	proceed := make(chan struct{})
	r := NewReporter(func(context.Context) (*Report, error) {
		gathered <- struct{}{}
		<-proceed
		return &Report{At: noon}, nil
	})
	defer r.Close()
	r.now = func() time.Time { return noon } // it stays fresh
	done := make(chan *Report)
	for range 5 {
		go func() {
			report, _ := r.Report(t.Context())
			done <- report
		}()
	}
	<-gathered
	close(proceed)
	first := <-done
	for range 4 {
		if other := <-done; other != first {
			t.Error("another report")
		}
	}
	if len(gathered) != 0 {
		t.Error("it was put together more than once")
	}
}
