package h2

import (
	"fmt"
	"net/http"
	"runtime/debug"

	"go.uber.org/zap"
	"golang.org/x/net/http2"
)

// handlers are those that run, and the requests that wait for one: as many as streams are allowed
// run at a time, also if clients reset their streams as soon as they have opened them
// (CVE-2023-44487). A kept stream is its owner's and counts no longer.
type handlers struct {
	running uint32
	waiting []*call
}

// call is one request.
type call struct {
	stream  *Stream
	request *http.Request
	handler http.Handler
}

// scheduleCallLocked runs a call, or lets it wait.
func (c *Conn) scheduleCallLocked(one *call) error {
	runningLimit, waitingLimit := c.opts.MaxStreams, waitingFactor*c.opts.MaxStreams
	if c.isUnprovenLocked() {
		runningLimit, waitingLimit = c.ledger.bounds.Handlers, unprovenWaiting
	}
	switch h := &c.handlers; {
	case h.running < runningLimit:
		h.running++
		go c.runCall(one)
	case uint32(len(h.waiting)) >= waitingLimit: // #nosec G115 -- bounded by the comparison
		c.ledger.free(&one.stream.claim) // it will have no handler
		return http2.ConnectionError(http2.ErrCodeEnhanceYourCalm)
	default:
		h.waiting = append(h.waiting, one)
		one.stream.call = one
	}
	return nil
}

// startWaitingLocked runs calls that wait, after the limit of handlers was raised.
func (c *Conn) startWaitingLocked() {
	for h := &c.handlers; h.running < c.opts.MaxStreams && len(h.waiting) > 0; {
		h.running++
		if one := c.nextCallLocked(); one != nil {
			go c.runCall(one)
		}
	}
}

// runCall runs a call's handler, and what waits behind it.
func (c *Conn) runCall(one *call) {
	for one != nil {
		c.handleCall(one)
		c.mu.Lock()
		one = c.nextCallLocked()
		c.unlockAndFlush()
	}
}

// nextCallLocked is the call that has waited longest, and still has a stream. If there is none, one
// handler fewer runs.
func (c *Conn) nextCallLocked() *call {
	h := &c.handlers
	for len(h.waiting) > 0 {
		one := h.waiting[0]
		h.waiting[0] = nil
		if h.waiting = h.waiting[1:]; one.stream.err == nil {
			one.stream.call = nil
			return one
		}
		if one.stream.body != nil {
			c.creditConnLocked(one.stream.body.discard())
		}
	}
	h.waiting = nil
	h.running--
	return nil
}

// handleCall answers one request. A panic resets its stream.
func (c *Conn) handleCall(one *call) {
	s := one.stream
	w := &Response{stream: s, request: one.request, header: http.Header{}}
	defer func() {
		if p := recover(); p != nil {
			if p != http.ErrAbortHandler {
				c.opts.Log.Error("BUG: a handler of HTTP/2 panicked", zap.String("panic", fmt.Sprintf("%T", p)),
					zap.ByteString("stack", debug.Stack()))
			}
			s.Reset()
		}
		if s.body != nil {
			_ = s.body.Close()
		}
		c.mu.Lock()
		defer c.unlockAndFlush()
		s.endHandlerLocked(w.kept)
	}()
	one.handler.ServeHTTP(w, one.request)
	w.finish()
}
