package h2

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"sync"
	"time"
)

var errClosedBody = errors.New("the request body is closed")

// body is a request's body as far as it has come: never more than the window that the client was
// given.
type body struct {
	// Static after construction.
	stream   *Stream
	expected int64 // bytes, by the request's head; -1: it does not say

	trailer http.Header // the request's: keys that its head announces, and values once they are published

	// The handler's.
	expectsContinue bool // the client waits for 100 Continue

	mu              sync.Mutex
	changed         sync.Cond
	buffer          bytes.Buffer
	received        int64
	err             error       // after what is in buffer
	receivedTrailer http.Header // the trailer that came, until the end has been read
	deadline        *time.Timer
}

func newBody(s *Stream, expected int64, expectsContinue bool) *body {
	b := &body{stream: s, expected: expected, expectsContinue: expectsContinue}
	b.changed.L = &b.mu
	return b
}

// receive takes what the client sent, and reports false if no handler reads it.
func (b *body) receive(data []byte) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.received += int64(len(data))
	if b.err != nil {
		return false
	}
	b.buffer.Write(data)
	b.changed.Signal()
	return true
}

// isOverLength reports that n bytes more are more than was announced.
func (b *body) isOverLength(n int) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.expected >= 0 && b.received+int64(n) > b.expected
}

// end notes that the client has sent all of it, and a trailer after it.
func (b *body) end(trailer http.Header) {
	b.mu.Lock()
	b.receivedTrailer = trailer
	short := b.expected >= 0 && b.received != b.expected
	b.mu.Unlock()
	if short {
		b.fail(fmt.Errorf("%d bytes were announced, and %d came: %w", b.expected, b.received, io.ErrUnexpectedEOF))
		return
	}
	b.fail(io.EOF)
}

// fail lets reads fail after what has come. The first error counts.
func (b *body) fail(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.failLocked(err)
}

// failLocked is fail with mu held.
func (b *body) failLocked(err error) {
	if b.err == nil {
		b.err = err
	}
	b.changed.Broadcast()
}

// Read implements io.Reader. The client may send as many bytes more as are read.
func (b *body) Read(p []byte) (int, error) {
	if b.expectsContinue {
		b.expectsContinue = false
		b.stream.sendContinue()
	}
	b.mu.Lock()
	for b.buffer.Len() == 0 && b.err == nil {
		b.changed.Wait()
	}
	n, _ := b.buffer.Read(p)
	err := b.err
	if n > 0 || len(p) == 0 {
		err = nil
	}
	if err == io.EOF {
		b.publishTrailerLocked()
	}
	b.mu.Unlock()
	b.stream.creditRead(n)
	return n, err
}

// publishTrailerLocked shows the trailer once the body has been read to its end: until then the
// request is the handler's alone.
func (b *body) publishTrailerLocked() {
	for key, values := range b.receivedTrailer {
		if _, announced := b.trailer[key]; announced {
			b.trailer[key] = values
		}
	}
	b.receivedTrailer = nil
}

// Close implements io.Closer: the handler wants no more of it.
func (b *body) Close() error {
	unread := b.discard()
	c := b.stream.conn
	c.mu.Lock()
	defer c.unlockAndFlush()
	c.creditConnLocked(unread)
	return nil
}

// discard forgets what has not been read, and returns how much that is.
func (b *body) discard() int {
	b.fail(errClosedBody)
	b.mu.Lock()
	defer b.mu.Unlock()
	unread := b.buffer.Len()
	b.buffer = bytes.Buffer{}
	if b.deadline != nil {
		b.deadline.Stop()
	}
	return unread
}

// setDeadline lets reads fail at a time; zero: never.
func (b *body) setDeadline(at time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.deadline != nil {
		b.deadline.Stop()
		b.deadline = nil
	}
	late := fmt.Errorf("reading a request body: %w", os.ErrDeadlineExceeded)
	switch left := time.Until(at); {
	case at.IsZero():
	case left <= 0:
		b.failLocked(late)
	default:
		b.deadline = time.AfterFunc(left, func() { b.fail(late) })
	}
}

// sendContinue tells the client to send the body.
func (s *Stream) sendContinue() {
	c := s.conn
	c.mu.Lock()
	defer c.unlockAndFlush()
	if s.err == nil && !s.requestEnded && !s.headSent {
		c.checkFloodLocked()
		c.writeHeadLocked(s.id, 100, nil, nil, false)
	}
}

// creditRead lets the client send as much again as was read.
func (s *Stream) creditRead(n int) {
	if n == 0 {
		return
	}
	c := s.conn
	c.mu.Lock()
	defer c.unlockAndFlush()
	c.creditConnLocked(n)
	if s.err == nil && !s.requestEnded {
		c.creditStreamLocked(s, n)
	}
}
