package clientconn

import (
	"crypto/tls"
	"errors"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"go.uber.org/zap"

	"spillway/internal/tlsconn"
)

// ErrStalled says that a client took nothing for the stall timeout.
var ErrStalled = errors.New("the client stopped reading")

// unsentBytesLimit bounds what a stalled client pins in the kernel to about this many bytes,
// without capping the window on long paths as a small send buffer would (design D10a).
const unsentBytesLimit = 64 << 10

// Listener makes every connection a paced one, and counts it.
type Listener struct {
	net.Listener
	Seats    *CPULimiter
	Eviction *EvictionPolicy
	Conns    *Connections
	// Strict is what answers say of strict transport security; nil: nothing.
	Strict *string
	TLS    *tls.Config // nil: there is no TLS
	Log    *zap.Logger
}

// minAcceptRetry and maxAcceptRetry are how long an Accept that failed is not tried again, at first
// and at most (net/http's).
const (
	minAcceptRetry = 5 * time.Millisecond
	maxAcceptRetry = time.Second
)

// Accept waits for the next connection. Where the system cannot give one now, as without
// descriptors left, it tries again: an error would end the server.
func (l Listener) Accept() (net.Conn, error) {
	for pause := minAcceptRetry; ; pause = min(2*pause, maxAcceptRetry) {
		c, err := l.Listener.Accept()
		switch {
		case err == nil:
			tuneTCP(c)
			paced := New(c, l.Seats, l.Eviction)
			paced.strict, paced.tls = l.Strict, l.TLS != nil
			l.Conns.admit(paced)
			if l.TLS != nil {
				return paced.Secure(l.TLS), nil
			}
			return paced, nil
		case !isTemporary(err):
			return nil, err
		}
		l.Log.Warn("a connection could not be accepted", zap.Error(err))
		time.Sleep(pause)
	}
}

// isTemporary reports that an Accept may succeed the next time: the system is short of something,
// or the client has left already.
func isTemporary(err error) bool {
	for _, short := range []syscall.Errno{
		syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM, syscall.ECONNABORTED, syscall.EPERM,
	} {
		if errors.Is(err, short) {
			return true
		}
	}
	return false
}

// PacedConn is where backpressure lives: a client's socket. While it is paced, a Write waits for
// the client only as long as the client makes progress. It lies below TLS, since a TLS connection
// cannot go on after a write that timed out half-way, while a socket can.
type PacedConn struct {
	net.Conn
	seat     cpuPermit       // the answerer's
	eviction *EvictionPolicy // static; nil: none
	tracking connTracking
	strict   *string       // static; nil: none
	meter    tlsconn.Meter // the reader's
	pace     atomic.Pointer[pace]
	sealed   *SealedRecords             // the writer's, during RecordWriter.Seal: takes what TLS writes
	tls      bool                       // static: there is TLS above
	timed    atomic.Bool                // TCP_USER_TIMEOUT is set, by SetPace
	stalled  atomic.Bool                // evicted: what is written now fails for that reason, whatever the error
	onLost   atomic.Pointer[func()]     // called by Close, unless TakeOver was called before; nil: nothing is
	polled   atomic.Pointer[PolledConn] // reads and writes without waiting; nil: they wait
	// sendMu is held by SetPace and by writes that are sent: TLS writes on the goroutine that
	// reads, too, to answer a key update.
	sendMu sync.Mutex
}

// pace is how fast a client must take what it asked for.
type pace struct {
	stall time.Duration
	pin   *pin // the old state that is kept alive for the client; nil: none is
}

// New makes a paced connection of c. s and e may be nil.
func New(c net.Conn, s *CPULimiter, e *EvictionPolicy) *PacedConn {
	return &PacedConn{Conn: c, seat: cpuPermit{limiter: s}, eviction: e}
}

// NetConn is the connection below, which has the socket.
func (c *PacedConn) NetConn() net.Conn { return c.Conn }

// Read implements net.Conn. Below TLS it reads no further than the record that it is in, and no
// more than a client may send without plaintext.
func (c *PacedConn) Read(b []byte) (int, error) {
	if !c.tls {
		return c.receive(b)
	}
	n, err := c.receive(c.meter.LimitRead(b))
	if flood := c.meter.CountRead(b[:n]); flood != nil {
		return 0, flood
	}
	return n, err
}

// Secure is the connection with TLS above it.
func (c *PacedConn) Secure(config *tls.Config) *tlsconn.SecureConn {
	return tlsconn.NewServerConn(c, &c.meter, config)
}

func (c *PacedConn) receive(b []byte) (int, error) {
	if s := c.polled.Load(); s != nil {
		return s.receive(b)
	}
	return c.Conn.Read(b)
}

// SetPace starts to demand progress; a stall of 0 ends that. An answer that keeps so many bytes of
// old state alive is a large one: it waits for a seat first. Setting the pace anew ends both.
func (c *PacedConn) SetPace(stall time.Duration, pinned int64) error {
	c.sendMu.Lock()
	defer c.sendMu.Unlock()
	c.seat.setHeld(pinned > 0)
	c.timed.Store(stall > 0)
	endVanished(c.Conn, 2*max(stall, 0)) // after a stall, so that a stall is what it is called
	if stall <= 0 {
		c.setPace(nil)
		return c.Conn.SetWriteDeadline(time.Time{})
	}
	p := &pace{stall: stall}
	if pinned > 0 {
		p.pin = &pin{bytes: pinned}
	}
	c.setPace(p)
	return nil
}

// setPace puts a pace in the place of the one before.
func (c *PacedConn) setPace(p *pace) {
	if before := c.pace.Swap(p); before != nil {
		c.eviction.unpin(before.pin)
	}
	if p != nil {
		c.eviction.pin(p.pin)
	}
}

// ClearPace ends what an earlier answer demanded. What passes through may pause as long as its own
// rules allow.
func (c *PacedConn) ClearPace() {
	if c.timed.Load() {
		_ = c.SetPace(0, 0) // fails on a closed connection, as the answer will
	}
}

// OnLost makes Close call lost, unless TakeOver is called before.
func (c *PacedConn) OnLost(lost func()) { c.onLost.Store(&lost) }

// TakeOver reports that the connection has not been closed since OnLost.
func (c *PacedConn) TakeOver() bool { return c.onLost.Swap(nil) != nil }

// Close implements net.Conn. It calls the function that OnLost set.
func (c *PacedConn) Close() error {
	if lost := c.onLost.Swap(nil); lost != nil {
		(*lost)()
	}
	c.stopCounting()
	if s := c.polled.Load(); s != nil {
		s.sendLast()
	}
	return c.Conn.Close()
}

// StopPacing ends what is demanded of writes, and nothing else: the writer that sends from now on
// detects stalls itself.
func (c *PacedConn) StopPacing() {
	c.setPace(nil)
	_ = c.Conn.SetWriteDeadline(time.Time{}) // fails on a closed connection
}

// StallChecks is how often a Write that waits looks, within a stall timeout, whether the client
// took something meanwhile: a client is evicted that much late at most.
const StallChecks = 4

// Write implements net.Conn. It sends b, unless a RecordWriter or a PolledConn does that later.
func (c *PacedConn) Write(b []byte) (int, error) {
	if c.sealed != nil {
		*c.sealed = append(*c.sealed, b...)
		return len(b), nil
	}
	if s := c.polled.Load(); s != nil {
		return s.bufferRecords(b)
	}
	return c.send(b)
}

// send sends b. Under a pace it returns ErrStalled, or why its pin was evicted, once the client
// falls below it, and has reset the connection.
func (c *PacedConn) send(b []byte) (int, error) {
	c.sendMu.Lock()
	defer c.sendMu.Unlock()
	p := c.pace.Load()
	if p == nil {
		n, _, err := c.sendUnseated(b)
		return n, err
	}
	written, progress := 0, time.Now()
	for {
		stall := c.eviction.StallTimeout(p.stall)
		if err := c.Conn.SetWriteDeadline(time.Now().Add(min(stall/StallChecks, RecheckInterval))); err != nil {
			return written, err
		}
		began := time.Now()
		n, waited, err := c.sendUnseated(b[written:])
		written += n
		if p.pin != nil {
			p.pin.addProgress(n, time.Since(began)-waited)
		}
		progress = progress.Add(waited) // that was not the client's doing
		if n > 0 {
			progress = time.Now()
		}
		switch slow := p.pin.evictionReason(); {
		case slow != nil:
			c.Cut()
			return written, slow
		case err == nil:
			return written, nil
		case !errors.Is(err, os.ErrDeadlineExceeded):
			return written, err
		case time.Since(progress) >= stall:
			return written, c.abort()
		}
	}
}

// sendUnseated sends b. A seat is given up while it waits for the client; waited is how long it
// took to have the seat back.
func (c *PacedConn) sendUnseated(b []byte) (n int, waited time.Duration, err error) {
	if !c.seat.held {
		n, err = c.Conn.Write(b)
		return n, 0, err
	}
	if raw, ok := c.Conn.(syscall.Conn); ok {
		return sendSeated(raw, c.seat.limiter, b)
	}
	c.seat.limiter.Release()
	n, err = c.Conn.Write(b)
	return n, c.seat.limiter.Acquire(), err
}

// abort resets the connection of a client that stalled. After a clean end, the kernel would keep
// what the client does not take and go on offering it; and TLS would wait to say goodbye.
func (c *PacedConn) abort() error {
	c.stalled.Store(true)
	c.Cut()
	return ErrStalled
}

// Cut ends the connection so that the peer sees an abort and not a clean end. Any goroutine may
// call it.
func (c *PacedConn) Cut() {
	if t, ok := c.Conn.(*net.TCPConn); ok {
		_ = t.SetLinger(0) // without it the close is still a close
	}
	_ = c.Close()
}

// PacedConnOf finds the paced connection below whatever wraps it.
func PacedConnOf(c net.Conn) *PacedConn {
	for {
		switch v := c.(type) {
		case *PacedConn:
			return v
		case tlsconn.Above:
			c = v.NetConn()
		default:
			return nil
		}
	}
}

// ResetConn cuts a connection, and lets go of what wraps it. TLS would wait to say goodbye
// otherwise.
func ResetConn(c net.Conn) {
	if p := PacedConnOf(c); p != nil {
		p.Cut()
	}
	_ = c.Close()
}
