package h2

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/http/httpguts"
)

// Response is the http.ResponseWriter of a request. What of it is written is what net/http's HTTP/2
// server would write.
type Response struct {
	stream  *Stream
	request *http.Request

	header   http.Header // the handler's
	sent     http.Header // as it was when the status was set
	status   int         // 0: not yet
	headSent bool
	kept     bool     // the stream has a Keeper
	written  int64    // bytes of the body
	held     []byte   // the last of them, which are not sent yet
	trailers []string // keys that are announced

	mu       sync.Mutex
	deadline *time.Timer
}

// Header implements http.ResponseWriter.
func (w *Response) Header() http.Header { return w.header }

// WriteHeader implements http.ResponseWriter. 1xx are sent at once, and may be many.
func (w *Response) WriteHeader(status int) {
	switch {
	case w.status != 0:
	case status < 100 || status > 999:
		panic(fmt.Sprintf("invalid WriteHeader code %d", status))
	case status < 200:
		h := w.header.Clone()
		h.Del("Content-Length")
		h.Del("Transfer-Encoding")
		_ = w.sendHead(status, h, false) // fails on a stream that has ended, as what follows will
	default:
		w.status, w.sent = status, w.header.Clone()
		for _, line := range w.sent["Trailer"] {
			for key := range strings.SplitSeq(line, ",") {
				w.declareTrailer(key)
			}
		}
	}
}

// Write implements http.ResponseWriter.
func (w *Response) Write(b []byte) (int, error) {
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	if !bodyAllowed(w.status) {
		return 0, http.ErrBodyNotAllowed
	}
	if w.written += int64(len(b)); w.announcedLength() >= 0 && w.written > w.announcedLength() {
		return 0, http.ErrContentLength
	}
	taken := 0
	for len(w.held)+len(b) > heldBytesLimit { // as bufio.Writer does: the first piece tells the type
		var n int
		var err error
		if len(w.held) == 0 {
			n, err = len(b), w.send(b, false)
		} else {
			n = heldBytesLimit - len(w.held)
			w.held = append(w.held, b[:n]...)
			err = w.flushHeld()
		}
		if err != nil {
			return taken, err
		}
		taken, b = taken+n, b[n:]
	}
	w.held = append(w.held, b...)
	return taken + len(b), nil
}

// announcedLength is the length that the handler has set, -1 if none.
func (w *Response) announcedLength() int64 {
	if n, err := strconv.ParseUint(w.sent.Get("Content-Length"), 10, 63); err == nil {
		return int64(n)
	}
	return -1
}

func (w *Response) flushHeld() error {
	if len(w.held) == 0 {
		return nil
	}
	held := w.held
	w.held = w.held[:0]
	return w.send(held, false)
}

// FlushError sends what was written, or the head alone.
func (w *Response) FlushError() error {
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	if w.isHeldComplete() {
		return nil // finish sends it, and need not wait
	}
	if len(w.held) > 0 {
		return w.flushHeld()
	}
	return w.send(nil, false)
}

// Flush implements http.Flusher.
func (w *Response) Flush() { _ = w.FlushError() }

// send sends a piece of the body, and the head in front of the first. last ends the answer, with
// its trailer.
func (w *Response) send(b []byte, last bool) error {
	silent := w.request.Method == http.MethodHead
	if !w.headSent {
		w.headSent = true
		end := silent || last && len(b) == 0 && len(w.trailers) == 0
		if err := w.sendHead(w.status, w.completeHead(b, last), end); err != nil || end {
			return err
		}
	}
	if silent {
		return nil
	}
	if !last && len(b) == 0 {
		w.stream.conn.mu.Lock()
		defer w.stream.conn.unlockAndFlush()
		return w.stream.err
	}
	if !last || len(w.trailers) == 0 {
		return w.stream.write(b, last)
	}
	if err := w.stream.write(b, false); err != nil {
		return err
	}
	return w.sendTrailer()
}

// completeHead adds to the head what the handler has left to the server. b is the body, or its
// first piece. With "Connection: close" it sends GOAWAY.
func (w *Response) completeHead(b []byte, last bool) http.Header {
	h := w.sent
	if _, err := strconv.ParseUint(h.Get("Content-Length"), 10, 63); err != nil {
		h.Del("Content-Length")
	}
	_, measured := h["Content-Length"]
	if !measured && last && bodyAllowed(w.status) && (len(b) > 0 || w.request.Method != http.MethodHead) {
		h.Set("Content-Length", strconv.Itoa(len(b)))
	}
	if _, typed := h["Content-Type"]; !typed && h.Get("Content-Encoding") == "" && bodyAllowed(w.status) && len(b) > 0 {
		h.Set("Content-Type", http.DetectContentType(b))
	}
	if _, dated := h["Date"]; !dated {
		h.Set("Date", time.Now().UTC().Format(http.TimeFormat))
	}
	if h.Get("Connection") == "close" {
		w.stream.conn.GoAway()
	}
	h.Del("Connection")
	return h
}

func (w *Response) declareTrailer(key string) {
	key = http.CanonicalHeaderKey(strings.TrimSpace(key))
	if httpguts.ValidTrailerHeader(key) && !slices.Contains(w.trailers, key) {
		w.trailers = append(w.trailers, key)
	}
}

// finish ends the answer, unless its stream is kept.
func (w *Response) finish() {
	defer w.stopDeadline() // the deadline is also for what is sent here
	if w.kept {
		return
	}
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	for key, values := range maps.Clone(w.header) {
		if name, found := strings.CutPrefix(key, http.TrailerPrefix); found {
			w.declareTrailer(name)
			w.header[http.CanonicalHeaderKey(name)] = values
		}
	}
	w.trailers = slices.DeleteFunc(w.trailers, func(key string) bool { return len(w.header[key]) == 0 })
	if w.canLeaveRemainder() {
		_ = w.leaveRemainder()
		return
	}
	_ = w.send(w.held, true) // fails on a stream that has ended
}

// stopDeadline ends the deadline for writing.
func (w *Response) stopDeadline() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.deadline != nil {
		w.deadline.Stop()
	}
}

// endFunc is called when a stream ends.
type endFunc struct{ call func(error) }

// OnEnd has f called with the reason when the stream ends, on a goroutine of its own, unless stop
// is called first. The handler may call both. Once it has kept the stream, it has a Keeper for
// that.
func (w *Response) OnEnd(f func(error)) (stop func()) {
	s, e := w.stream, &endFunc{f}
	s.conn.mu.Lock()
	defer s.conn.unlockAndFlush()
	if s.err != nil {
		go f(s.err)
		return func() {}
	}
	s.onEnd = append(s.onEnd, e)
	return func() { s.forgetEndFunc(e) }
}

// forgetEndFunc ends what OnEnd began.
func (s *Stream) forgetEndFunc(e *endFunc) {
	s.conn.mu.Lock()
	defer s.conn.unlockAndFlush()
	if s.exchange == nil {
		return
	}
	if s.onEnd = slices.DeleteFunc(s.onEnd, func(other *endFunc) bool { return other == e }); len(s.onEnd) == 0 {
		s.onEnd = nil
	}
}

// Keep lets the stream outlive its handler: it is its owner's from now on, and the handler must
// write no more. What was written is sent first.
func (w *Response) Keep(k Keeper) (*Stream, error) {
	if err := w.FlushError(); err != nil {
		return nil, err
	}
	s := w.stream
	s.conn.mu.Lock()
	defer s.conn.unlockAndFlush()
	if s.err != nil {
		return nil, s.err
	}
	s.keeper, w.kept = k, true
	w.request, w.header, w.sent, w.held = nil, nil, nil, nil // an idle stream is small
	return s, nil
}

// EnableFullDuplex implements what http.ResponseController asks for: it always is.
func (w *Response) EnableFullDuplex() error { return nil }

// SetReadDeadline makes reads of the request's body fail from that time on.
func (w *Response) SetReadDeadline(at time.Time) error {
	if w.stream.body != nil {
		w.stream.body.setDeadline(at)
	}
	return nil
}

// SetWriteDeadline resets the stream at a time, at once if that has passed.
func (w *Response) SetWriteDeadline(at time.Time) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.deadline != nil {
		w.deadline.Stop()
		w.deadline = nil
	}
	switch left := time.Until(at); {
	case at.IsZero():
	case left <= 0:
		w.stream.Reset()
	default:
		w.deadline = time.AfterFunc(left, w.stream.Reset)
	}
	return nil
}

func bodyAllowed(status int) bool {
	return status >= 200 && status != http.StatusNoContent && status != http.StatusNotModified
}
