package h2

import (
	"bytes"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
)

// fakeConn is a NonblockingConn whose client takes everything at once.
type fakeConn struct {
	ready  func()
	onSend func() // called by Write
	sends  atomic.Int32

	mu   sync.Mutex
	come []byte
}

func (f *fakeConn) Open(ready, _ func()) error {
	f.ready = ready
	return nil
}

func (f *fakeConn) ReadAgain() {}

func (f *fakeConn) Read(b []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := copy(b, f.come)
	if f.come = f.come[n:]; n == 0 {
		return 0, noDataError{}
	}
	return n, nil
}

func (f *fakeConn) Write(b []byte) (int, error) {
	f.sends.Add(1)
	if f.onSend != nil {
		f.onSend()
	}
	return len(b), nil
}

func (*fakeConn) Flush() (bool, error) { return true, nil }

func (*fakeConn) HasPending() bool { return false }

func (*fakeConn) Close() {}

// arrives has bytes arrive, and calls ready as the poller does.
func (f *fakeConn) arrives(b []byte) {
	f.mu.Lock()
	f.come = append(f.come, b...)
	f.mu.Unlock()
	f.ready()
}

// newFake makes a connection of a fakeConn whose client has greeted.
func newFake(t *testing.T) (*fakeConn, *Conn) {
	t.Helper()
	mine, theirs := net.Pipe()
	f, ended := &fakeConn{}, make(chan struct{})
	opts := options(func(http.ResponseWriter, *http.Request) {})
	opts.Nonblocking, opts.Ended = f, func() { close(ended) }
	c := New(theirs, opts)
	c.Serve()
	t.Cleanup(func() {
		c.Close()
		<-ended
		_ = mine.Close()
	})
	var hello bytes.Buffer
	_, _ = io.WriteString(&hello, http2.ClientPreface)
	_ = http2.NewFramer(&hello, nil).WriteSettings()
	f.arrives(hello.Bytes())
	return f, c
}

// The answers to many pings that arrive together are few sends, also of the poller's goroutine.
func TestManyPingsAtOnce(t *testing.T) {
	t.Parallel()
	f, c := newFake(t)
	before := f.sends.Load()
	var pings bytes.Buffer
	framer := http2.NewFramer(&pings, nil)
	for range 900 {
		_ = framer.WritePing(false, [8]byte{})
	}
	f.arrives(pings.Bytes())
	for end := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		c.mu.Lock()
		taken := c.reading.state.Load() == readNone && c.outbox.len() == 0 && !c.outbox.sending
		c.mu.Unlock()
		if taken {
			break
		}
		if time.Now().After(end) {
			t.Fatal("they are not answered")
		}
	}
	if n := f.sends.Load() - before; n == 0 || n > 10 {
		t.Errorf("%d sends", n)
	}
}

// A goroutine that flushes a connection sends what it has, and does not go on sending for others
// for as long as those have more.
func TestAFlushDoesNotSendForOthersWithoutEnd(t *testing.T) {
	t.Parallel()
	f, c := newFake(t)
	var stop atomic.Bool
	f.onSend = func() { // a large answer on another stream
		if !stop.Load() {
			c.mu.Lock()
			_ = c.framer.WritePing(true, [8]byte{})
			c.mu.Unlock()
		}
	}
	defer stop.Store(true)
	flushed := make(chan struct{})
	go func() {
		defer close(flushed)
		c.mu.Lock()
		_ = c.framer.WritePing(true, [8]byte{})
		c.mu.Unlock()
		c.Flush()
	}()
	select {
	case <-flushed:
	case <-time.After(patience):
		t.Error("it sends forever")
	}
}
