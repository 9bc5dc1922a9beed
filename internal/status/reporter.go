package status

import (
	"context"
	"sync"
	"time"
)

// Gather makes a report without rates.
type Gather func(context.Context) (*Report, error)

// Reporter makes reports, and computes rates from the last one. Requests within a second get the
// same report, so the cost does not depend on the number of readers.
type Reporter struct {
	gather Gather

	mu     sync.Mutex // held while a report is made: others wait for that one
	last   *Report
	sent   map[uint64]int64 // bytes of each watch, at last
	forget *time.Timer
}

const (
	// reportTTL is how long a report is served again. It is also the shortest time that rates are
	// measured over.
	reportTTL = time.Second
	// ratesTTL is how long a report is kept for the rates of the next one.
	ratesTTL = time.Minute
	// gatherTimeout bounds how long a report takes.
	gatherTimeout = 10 * time.Second
)

// NewReporter makes a reporter without a report. Close it.
func NewReporter(gather Gather) *Reporter {
	r := &Reporter{gather: gather}
	r.forget = time.AfterFunc(ratesTTL, r.drop)
	return r
}

// Close drops the last report.
func (r *Reporter) Close() {
	r.forget.Stop()
	r.drop()
}

func (r *Reporter) drop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last, r.sent = nil, nil
}

// Report is a report that is at most a second old.
func (r *Reporter) Report(ctx context.Context) (*Report, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.last != nil && time.Since(r.last.At) < reportTTL {
		return r.last, nil
	}
	ctx, cancel := context.WithTimeout(ctx, gatherTimeout)
	defer cancel()
	report, err := r.gather(ctx)
	if err != nil {
		return nil, err
	}
	r.addRatesLocked(report)
	r.last = report
	r.forget.Reset(ratesTTL)
	return report, nil
}

// addRatesLocked computes the bytes per second of the report's watches.
func (r *Reporter) addRatesLocked(report *Report) {
	sent := make(map[uint64]int64, len(report.Watches.Items))
	over := 0.0
	if r.last != nil {
		over = report.At.Sub(r.last.At).Seconds()
	}
	report.Watches.RateSeconds = over
	for _, w := range report.Watches.Items {
		sent[w.ID] = w.Bytes
		before, known := r.sent[w.ID]
		switch {
		case known && over > 0:
			w.BytesPerSecond = float64(w.Bytes-before) / over
		case w.AgeSeconds > 0:
			w.BytesPerSecond = float64(w.Bytes) / max(w.AgeSeconds, reportTTL.Seconds())
		}
		report.Watches.BytesPerSecond += w.BytesPerSecond
	}
	r.sent = sent
}
