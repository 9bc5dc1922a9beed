package status

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// fakeReports gathers reports of one watch, with bytes that the test sets.
type fakeReports struct {
	bytes    int64
	gathered int
	err      error
}

func (c *fakeReports) gather(context.Context) (*Report, error) {
	c.gathered++
	watches := Watches{Total: 1, Items: []*Watch{{ID: 7, Bytes: c.bytes, AgeSeconds: 10}}}
	return &Report{At: time.Now(), Watches: watches}, c.err
}

func TestReporter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &fakeReports{bytes: 1000}
		r := NewReporter(c.gather)
		defer r.Close()
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
		time.Sleep(999 * time.Millisecond)
		c.bytes = 5000
		f(1, 100, 0) // the same report
		time.Sleep(3001 * time.Millisecond)
		f(2, 1000, 4)
		time.Sleep(2 * time.Second)
		f(3, 0, 2)

		time.Sleep(4 * time.Second)
		c.err = errors.New("stopping")
		if _, err := r.Report(t.Context()); err == nil {
			t.Error("what could not be gathered was reported")
		}
		c.err = nil
		r.drop() // as after a while without requests
		f(5, 500, 0)
	})
}

// A request during the making of a report waits for that report.
func TestReporterMakesOneForAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gathered := make(chan struct{}, 10)
		proceed := make(chan struct{})
		r := NewReporter(func(context.Context) (*Report, error) {
			gathered <- struct{}{}
			<-proceed
			return &Report{At: time.Now()}, nil
		})
		defer r.Close()
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
	})
}
