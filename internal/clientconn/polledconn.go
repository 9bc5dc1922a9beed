package clientconn

import (
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"spillway/internal/rawio"
	"spillway/internal/tlsconn"
)

// PolledConn reads and writes a connection without waiting, so that the connection needs no
// goroutine: a Poller calls ready and room (h2.NonblockingConn). Below TLS it keeps the records
// that TLS writes, in their order, and sends them as far as there is room.
//
// TLS can be read this way: after a temporary error crypto/tls goes on where it was, also in the
// middle of a record.
type PolledConn struct {
	// Static after construction.
	conn   net.Conn // TLS, or below
	below  *PacedConn
	raw    syscall.RawConn
	poller *Poller
	isTCP  bool // a short read has emptied the socket

	// Static after Open.
	attended *AttendedConn
	onRoom   func()

	exhausted bool        // the reader's: nothing is left to be read
	writing   atomic.Bool // Write is called
	needsRoom atomic.Bool // onRoom is to be called

	mu           sync.Mutex
	unsent       *[]byte     // nil: none
	sent         int         // bytes of unsent that were sent
	replies      int         // bytes in unsent, or more, that TLS wrote by itself
	err          error       // of a send, or of a client that stalled
	blockedSince time.Time   // when a send last found no room, with no byte sent since; zero: it found some
	stallTimer   *time.Timer // runs while something is unsent; nil: it never has
}

// repliesLimit is how many bytes TLS may write by itself that a client does not read. Those are
// answers to key updates, for which a client need not read.
const repliesLimit = 16 << 10

var errUnread = errors.New("the client does not read what was sent to it")

// wouldBlock is the error of a read when nothing has come yet. It is temporary, for crypto/tls.
type wouldBlock struct{}

func (wouldBlock) Error() string    { return "nothing has come yet" }
func (wouldBlock) Timeout() bool    { return true }
func (wouldBlock) Temporary() bool  { return true }
func (wouldBlock) WouldBlock() bool { return true }

var (
	unsentBuffers = sync.Pool{New: func() any { b := make([]byte, 0, RecordBytes); return &b }}
	senders       = sync.Pool{New: func() any { return rawio.NewSender() }}
	receivers     = sync.Pool{New: func() any { return rawio.NewReceiver() }}
)

// NewPolledConn makes a PolledConn of a connection whose handshake is done and that nothing reads
// or writes; nil if it cannot be polled.
func NewPolledConn(c net.Conn, p *Poller) *PolledConn {
	below := PacedConnOf(c)
	if p == nil || below == nil || !rawio.Supported {
		return nil
	}
	raw := rawConn(c)
	if raw == nil {
		return nil
	}
	_, isTCP := below.Conn.(*net.TCPConn)
	return &PolledConn{conn: c, below: below, raw: raw, poller: p, isTCP: isTCP}
}

// Open implements h2.NonblockingConn. From now on no read or write of the connection waits.
func (s *PolledConn) Open(ready, room func()) error {
	s.onRoom = room
	s.below.polled.Store(s)
	s.attended = s.poller.AttendConn(s.raw, ready, s.onWritable)
	if s.attended == nil {
		return fmt.Errorf("watching a connection: %w", net.ErrClosed)
	}
	return nil
}

// ReadAgain implements h2.NonblockingConn.
func (s *PolledConn) ReadAgain() { s.exhausted = false }

// Read implements h2.NonblockingConn.
func (s *PolledConn) Read(b []byte) (int, error) { return s.conn.Read(b) }

// Write implements h2.NonblockingConn.
func (s *PolledConn) Write(b []byte) (int, error) {
	s.writing.Store(true)
	defer s.writing.Store(false)
	return s.conn.Write(b)
}

// HasPending implements h2.NonblockingConn.
func (s *PolledConn) HasPending() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.unsent != nil
}

// receive reads what has arrived at the socket. PacedConn.Read calls it.
func (s *PolledConn) receive(b []byte) (int, error) {
	switch err := s.sendError(); {
	case err != nil:
		return 0, err
	case s.exhausted:
		return 0, wouldBlock{}
	}
	r := receivers.Get().(*rawio.Receiver)
	n, err := r.Receive(s.raw, b)
	receivers.Put(r)
	var failed syscall.Errno
	switch {
	case errors.Is(err, rawio.ErrWouldBlock):
		s.exhausted = true
		return 0, wouldBlock{}
	case errors.As(err, &failed): // some of these call themselves temporary
		return n, os.NewSyscallError("recvfrom", err)
	}
	s.exhausted = s.isTCP && err == nil && n < len(b) && !s.attended.HasLeft()
	return n, err
}

// sendError is the error of an earlier send; nil: none has failed.
func (s *PolledConn) sendError() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// bufferRecords keeps what TLS writes for Flush to send.
func (s *PolledConn) bufferRecords(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return 0, s.err
	}
	if s.unsent == nil {
		s.unsent = unsentBuffers.Get().(*[]byte)
	}
	if !s.writing.Load() {
		if s.replies += len(b); s.replies > repliesLimit {
			s.err = errUnread
			return 0, s.err
		}
	}
	*s.unsent = append(*s.unsent, b...)
	return len(b), nil
}

// Flush implements h2.NonblockingConn.
func (s *PolledConn) Flush() (done bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sendLocked(); s.err == nil && s.unsent != nil {
		// From here on the poller's next event calls onRoom. If an earlier one has reported room
		// already, the second send finds it.
		s.needsRoom.Store(true)
		if s.sendLocked(); s.unsent != nil {
			s.scheduleStallCheckLocked()
			return false, s.err
		}
		if !s.needsRoom.CompareAndSwap(true, false) {
			return false, nil // onRoom was called: its goroutine flushes what comes next
		}
	}
	return s.err == nil, s.err
}

// sendLocked sends what there is room for.
func (s *PolledConn) sendLocked() {
	if s.unsent == nil || s.err != nil {
		return
	}
	sender := senders.Get().(*rawio.Sender)
	n, err := sender.Send(s.raw, (*s.unsent)[s.sent:])
	senders.Put(sender)
	s.sent += n
	if n > 0 {
		s.blockedSince = time.Time{}
	}
	if s.err = err; s.sent == len(*s.unsent) {
		s.releaseBufferLocked()
	}
}

// releaseBufferLocked gives the buffer back, and stops the timer.
func (s *PolledConn) releaseBufferLocked() {
	if b := s.unsent; b != nil && cap(*b) <= 4*OfferBytesLimit {
		*b = (*b)[:0]
		unsentBuffers.Put(b)
	}
	s.unsent, s.sent, s.replies = nil, 0, 0
	if s.stallTimer != nil {
		s.stallTimer.Stop()
	}
}

// scheduleStallCheckLocked has checkStall run while the client takes nothing.
func (s *PolledConn) scheduleStallCheckLocked() {
	p := s.below.pace.Load()
	if p == nil || s.err != nil {
		return
	}
	if s.blockedSince.IsZero() {
		s.blockedSince = time.Now()
	}
	wait := min(s.below.eviction.StallTimeout(p.stall)/StallChecks, RecheckInterval)
	if s.stallTimer == nil {
		s.stallTimer = time.AfterFunc(wait, s.checkStall)
	} else {
		s.stallTimer.Reset(wait)
	}
}

// checkStall evicts the client if it has taken nothing for the stall timeout.
func (s *PolledConn) checkStall() {
	if s.hasStalled() {
		_ = s.below.abort()
		s.onWritable()
	}
}

// hasStalled reports that the client has taken nothing for the stall timeout, which is the end. If
// it may still take something, checkStall runs again.
func (s *PolledConn) hasStalled() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.below.pace.Load()
	switch {
	case s.unsent == nil || s.err != nil || p == nil:
		return false
	case s.blockedSince.IsZero() || time.Since(s.blockedSince) < s.below.eviction.StallTimeout(p.stall):
		s.scheduleStallCheckLocked()
		return false
	}
	s.err = ErrStalled
	return true
}

// onWritable calls onRoom if a Flush has left something.
func (s *PolledConn) onWritable() {
	if s.needsRoom.CompareAndSwap(true, false) {
		s.onRoom()
	}
}

// Close implements h2.NonblockingConn.
func (s *PolledConn) Close() {
	s.attended.Stop()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		s.err = net.ErrClosed
	}
	s.releaseBufferLocked()
}

// sendLast sends the last words of TLS as far as there is room. The connection is about to be
// closed.
func (s *PolledConn) sendLast() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sendLocked()
}

// rawConn is the socket under c, or nil if c does not show it.
func rawConn(c net.Conn) syscall.RawConn {
	for {
		switch v := c.(type) {
		case syscall.Conn:
			raw, err := v.SyscallConn()
			if err != nil {
				return nil
			}
			return raw
		case tlsconn.LayeredConn:
			c = v.NetConn()
		default:
			return nil
		}
	}
}
