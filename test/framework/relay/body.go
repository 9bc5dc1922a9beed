package relay

import (
	"io"
	"time"
)

// delayedBody passes on what it reads some time after it arrived, each run of bytes by a time of
// its own, and all in their order.
type delayedBody struct {
	io.Closer
	runs chan run
	rest []byte
}

// run is bytes that may be read from a moment on, or why there are no more.
type run struct {
	bytes []byte
	due   time.Time
	err   error
}

// delayed reads a body to its end, or until it is closed.
func (r *Relay) delayed(body io.ReadCloser, lateness func() time.Duration) *delayedBody {
	d := &delayedBody{Closer: body, runs: make(chan run, 4096)}
	go func() {
		defer close(d.runs)
		var due time.Time
		for {
			buf := make([]byte, 32<<10)
			n, err := body.Read(buf)
			if at := time.Now().Add(lateness()); at.After(due) {
				due = at
			}
			r.late.Add(1)
			d.runs <- run{buf[:n], due, err}
			if err != nil {
				return
			}
		}
	}()
	return d
}

// Read implements io.Reader.
func (d *delayedBody) Read(p []byte) (int, error) {
	if len(d.rest) == 0 {
		next, ok := <-d.runs
		if !ok {
			return 0, io.EOF
		}
		time.Sleep(time.Until(next.due))
		if next.err != nil && len(next.bytes) == 0 {
			return 0, next.err
		}
		d.rest = next.bytes
	}
	n := copy(p, d.rest)
	d.rest = d.rest[n:]
	return n, nil
}
