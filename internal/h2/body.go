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
	stream   *Stream
	expected int64       // bytes, by the request's head; -1: it does not say
	trailer  http.Header // the request's, as far as announced

	// The handler's.
	proceed bool // the client waits for 100 Continue

	mu       sync.Mutex
	more     sync.Cond
	buffer   bytes.Buffer
	got      int64
	err      error       // after what is in buffer
	last     http.Header // the trailer that came, until the end has been read
	deadline *time.Timer
}

func newBody(s *Stream, expected int64, proceed bool) *body {
	b := &body{stream: s, expected: expected, proceed: proceed}
	b.more.L = &b.mu
	return b
}

// put takes what the client sent, and reports false if no handler reads it.
func (b *body) put(data []byte) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.got += int64(len(data))
	if b.err != nil {
		return false
	}
	b.buffer.Write(data)
	b.more.Signal()
	return true
}

// exceeds reports that n bytes more are more than was announced.
func (b *body) exceeds(n int) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.expected >= 0 && b.got+int64(n) > b.expected
}

// end says that the client has sent all of it, and a trailer after it.
func (b *body) end(trailer http.Header) {
	b.mu.Lock()
	b.last = trailer
	short := b.expected >= 0 && b.got != b.expected
	b.mu.Unlock()
	if short {
		b.fail(fmt.Errorf("%d bytes were announced, and %d came: %w", b.expected, b.got, io.ErrUnexpectedEOF))
		return
	}
	b.fail(io.EOF)
}

// fail lets reads fail after what has come. The first error counts.
func (b *body) fail(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.failed(err)
}

// failed is fail with mu held.
func (b *body) failed(err error) {
	if b.err == nil {
		b.err = err
	}
	b.more.Broadcast()
}

// Read implements io.Reader. What is read the client may send again.
func (b *body) Read(p []byte) (int, error) {
	if b.proceed {
		b.proceed = false
		b.stream.proceed()
	}
	b.mu.Lock()
	for b.buffer.Len() == 0 && b.err == nil {
		b.more.Wait()
	}
	n, _ := b.buffer.Read(p)
	err := b.err
	if n > 0 || len(p) == 0 {
		err = nil
	}
	if err == io.EOF {
		b.trail()
	}
	b.mu.Unlock()
	b.stream.took(n)
	return n, err
}

// trail shows the trailer once the body has been read to its end: until then the request is the
// handler's alone. Called with mu held.
func (b *body) trail() {
	for key, values := range b.last {
		if _, announced := b.trailer[key]; announced {
			b.trailer[key] = values
		}
	}
	b.last = nil
}

// Close implements io.Closer: the handler wants no more of it.
func (b *body) Close() error {
	unread := b.drop()
	c := b.stream.conn
	c.mu.Lock()
	defer c.unlock()
	c.credit(nil, unread)
	return nil
}

// drop forgets what has not been read, and returns how much that is.
func (b *body) drop() int {
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

// limit lets reads fail at a time; zero: never.
func (b *body) limit(at time.Time) {
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
		b.failed(late)
	default:
		b.deadline = time.AfterFunc(left, func() { b.fail(late) })
	}
}

// proceed tells the client to send the body.
func (s *Stream) proceed() {
	c := s.conn
	c.mu.Lock()
	defer c.unlock()
	if s.err == nil && !s.heard && !s.began {
		c.control()
		c.head(s.id, 100, nil, nil, false)
	}
}

// took lets the client send as much again as was read.
func (s *Stream) took(n int) {
	if n == 0 {
		return
	}
	c := s.conn
	c.mu.Lock()
	defer c.unlock()
	c.credit(nil, n)
	if s.err == nil && !s.heard {
		c.credit(s, n)
	}
}
