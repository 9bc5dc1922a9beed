package rawclient

import (
	"bufio"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
)

// WatchEnd is how a watch ended.
type WatchEnd struct {
	Reason Ending
	Status int    // HTTP status; 0 if there was no answer
	Body   []byte // of an answer other than 200
	Err    error  // what the transport or the parser said; io.EOF after Ended
}

// Error makes a WatchEnd the error that Next returns when there is nothing more.
func (e *WatchEnd) Error() string {
	return fmt.Sprintf("watch %s: HTTP %d: %v", e.Reason, e.Status, e.Err)
}

// Watcher is a scripted watch client. It reads the stream line by line, keeps every event that it
// has received, and can stop reading.
type Watcher struct {
	ctx      context.Context
	cancel   context.CancelFunc
	opts     []RequestOption
	headDone chan struct{} // closed when the head is there, or never will be
	endDone  chan struct{} // closed when end is set

	mu     sync.Mutex
	status int
	header http.Header
	events []WatchEvent
	read   int           // events handed out by Next
	gate   chan struct{} // nil: reading; else stalled, closed by Resume
	news   chan struct{} // closed and replaced with every event
	end    *WatchEnd
}

// Watch starts a watch of baseURL+path and returns at once. Close it, or end ctx. With
// Header("Accept-Encoding", "gzip") a compressed stream is read as such.
func Watch(ctx context.Context, baseURL, path string, opts ...RequestOption) *Watcher {
	w := &Watcher{opts: opts, headDone: make(chan struct{}), endDone: make(chan struct{}), news: make(chan struct{})}
	w.ctx, w.cancel = context.WithCancel(ctx)
	go w.run(baseURL, path)
	return w
}

func (w *Watcher) run(baseURL, path string) {
	defer close(w.endDone)
	defer w.cancel()
	response, done, err := call(w.ctx, baseURL, path, w.opts)
	if err != nil {
		reason := Unreachable
		if w.ctx.Err() != nil {
			reason = Cancelled
		}
		w.finish(&WatchEnd{Reason: reason, Err: err})
		close(w.headDone)
		return
	}
	defer done()
	defer response.Body.Close()
	w.mu.Lock()
	w.status, w.header = response.StatusCode, response.Header
	w.mu.Unlock()
	close(w.headDone)
	if response.StatusCode != http.StatusOK {
		body, err := io.ReadAll(response.Body)
		w.finish(&WatchEnd{Reason: Rejected, Status: response.StatusCode, Body: body, Err: err})
		return
	}
	end := w.consume(&gatedBody{w, response.Body}, response.Header.Get("Content-Encoding") == "gzip")
	end.Status = response.StatusCode
	w.finish(end)
}

// consume reads events until the body ends.
func (w *Watcher) consume(body io.Reader, zipped bool) *WatchEnd {
	if zipped {
		z, err := gzip.NewReader(bufio.NewReader(body))
		if err != nil {
			return &WatchEnd{Reason: reasonOf(w.ctx, err), Err: err}
		}
		body = z
	}
	lines := bufio.NewReader(body)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			reason := reasonOf(w.ctx, err)
			if reason == Ended && len(line) > 0 {
				reason = Unterminated
			}
			return &WatchEnd{Reason: reason, Err: err}
		}
		event, err := parseEvent(line)
		if err != nil {
			return &WatchEnd{Reason: Unparsable, Err: err}
		}
		if !w.record(event) {
			return &WatchEnd{Reason: Cancelled, Err: w.ctx.Err()}
		}
	}
}

// record keeps an event. While the watcher is stalled it waits; false means that the client gave
// up.
func (w *Watcher) record(e WatchEvent) bool {
	for {
		w.mu.Lock()
		gate := w.gate
		if gate == nil {
			w.events = append(w.events, e)
			close(w.news)
			w.news = make(chan struct{})
			w.mu.Unlock()
			return true
		}
		w.mu.Unlock()
		if !w.awaitResume(gate) {
			return false
		}
	}
}

// awaitResume waits for Resume. False means that the client gave up.
func (w *Watcher) awaitResume(gate chan struct{}) bool {
	select {
	case <-gate:
		return true
	case <-w.ctx.Done():
		return false
	}
}

// gatedBody is the body behind the gate of a Watcher.
type gatedBody struct {
	w    *Watcher
	body io.Reader
}

func (g *gatedBody) Read(p []byte) (int, error) {
	g.w.mu.Lock()
	gate := g.w.gate
	g.w.mu.Unlock()
	if gate != nil && !g.w.awaitResume(gate) {
		return 0, g.w.ctx.Err()
	}
	return g.body.Read(p)
}

func (w *Watcher) finish(end *WatchEnd) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.end = end
	close(w.news)
	w.news = make(chan struct{})
}

// Stall stops reading: no event is recorded from now on until Resume. A read that is under way may
// still take one buffer off the wire.
func (w *Watcher) Stall() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.gate == nil {
		w.gate = make(chan struct{})
	}
}

// Resume reads on.
func (w *Watcher) Resume() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.gate != nil {
		close(w.gate)
		w.gate = nil
	}
}

// Head waits for the status line and headers. The error is a *WatchEnd if there will be none.
func (w *Watcher) Head(ctx context.Context) (int, http.Header, error) {
	select {
	case <-w.headDone:
	case <-ctx.Done():
		return 0, nil, ctx.Err()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.status == 0 {
		return 0, nil, w.end
	}
	return w.status, w.header, nil
}

// Next waits for the next event that it has not returned yet. When there is none, the error is a
// *WatchEnd.
func (w *Watcher) Next(ctx context.Context) (WatchEvent, error) {
	for {
		w.mu.Lock()
		if w.read < len(w.events) {
			e := w.events[w.read]
			w.read++
			w.mu.Unlock()
			return e, nil
		}
		end, news := w.end, w.news
		w.mu.Unlock()
		if end != nil {
			return WatchEvent{}, end
		}
		select {
		case <-news:
		case <-ctx.Done():
			return WatchEvent{}, ctx.Err()
		}
	}
}

// Until returns the events from the next one up to and including the first for which found is true.
// With an error come those before it.
func (w *Watcher) Until(ctx context.Context, found func(WatchEvent) bool) ([]WatchEvent, error) {
	var seen []WatchEvent
	for {
		e, err := w.Next(ctx)
		if err != nil {
			return seen, err
		}
		if seen = append(seen, e); found(e) {
			return seen, nil
		}
	}
}

// Events are all events so far.
func (w *Watcher) Events() []WatchEvent {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.events)
}

// Wait waits for the end. The error is the context's.
func (w *Watcher) Wait(ctx context.Context) (*WatchEnd, error) {
	select {
	case <-w.endDone:
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.end, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Close gives the stream up and waits until its connection is closed. It is idempotent.
func (w *Watcher) Close() {
	w.cancel()
	<-w.endDone
}
