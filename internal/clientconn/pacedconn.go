package clientconn

import (
	"crypto/tls"
	"errors"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"spillway/internal/tlsconn"
)

// ErrStalled says that a client took nothing for the stall timeout.
var ErrStalled = errors.New("the client stopped reading")

// unsentBytesLimit bounds what a stalled client pins in the kernel to about this many bytes,
// without capping the window on long paths as a small send buffer would (design D10a).
const unsentBytesLimit = 64 << 10

// PacedConn is where backpressure lives: a client's socket. While it is paced, a Write waits for
// the client only as long as the client makes progress. It lies below TLS, because a TLS connection
// cannot go on after a write that timed out half-way, while a socket can.
type PacedConn struct {
	// Static after construction.
	net.Conn
	eviction *EvictionPolicy // nil: none
	strict   *string         // see Listener.Strict
	tls      bool            // there is TLS above

	permit   cpuPermit      // the answerer's
	meter    tlsconn.Meter  // the reader's
	sealed   *SealedRecords // the writer's, during RecordWriter.Seal: takes what TLS writes
	tracking connTracking
	pace     atomic.Pointer[pace]       // nil: nothing is demanded
	timed    atomic.Bool                // TCP_USER_TIMEOUT is set, by SetPace
	stalled  atomic.Bool                // evicted: what is written now fails for that reason, whatever the error
	onLost   atomic.Pointer[func()]     // called by Close, unless TakeOver was called first; nil: nothing is
	polled   atomic.Pointer[PolledConn] // reads and writes without waiting; nil: they wait
	wait     ClientWait                 // of a paced write
	// sendMu is held by SetPace and by writes that are sent: TLS writes on the goroutine that
	// reads, too, to answer a key update.
	sendMu sync.Mutex
}

// pace is how fast a client must take what it asked for.
type pace struct {
	stall time.Duration
	pin   *pin // the old state that is kept alive for the client; nil: none is
}

// New makes a paced connection of c. cpu and e may be nil.
func New(c net.Conn, cpu *CPULimiter, e *EvictionPolicy) *PacedConn {
	return &PacedConn{Conn: c, permit: cpuPermit{limiter: cpu}, eviction: e}
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
	return tlsconn.NewSecureConn(c, &c.meter, config)
}

func (c *PacedConn) receive(b []byte) (int, error) {
	if s := c.polled.Load(); s != nil {
		return s.receive(b)
	}
	return c.Conn.Read(b)
}

// SetPace demands progress of the client from now on, or no more if stall is 0. An answer that
// keeps pinned bytes of old state alive is a large one: it waits for a CPU permit, which it holds
// until the next call.
func (c *PacedConn) SetPace(stall time.Duration, pinned int64) error {
	c.sendMu.Lock()
	defer c.sendMu.Unlock()
	c.permit.setHeld(pinned > 0)
	c.timed.Store(stall > 0)
	endVanished(c.Conn, 2*max(stall, 0)) // after a stall, so that a stall is what it is called
	if stall <= 0 {
		return c.dropPace()
	}
	p := &pace{stall: stall}
	if pinned > 0 {
		p.pin = &pin{bytes: pinned}
	}
	c.replacePace(p)
	return nil
}

// ClearPace ends all that an earlier answer demanded. What passes through may pause as long as its
// own rules allow.
func (c *PacedConn) ClearPace() {
	if c.timed.Load() {
		_ = c.SetPace(0, 0) // fails on a closed connection, as the answer will
	}
}

// StopPacing ends what is demanded of writes, and nothing else: the writer that sends from now on
// detects stalls itself.
func (c *PacedConn) StopPacing() {
	_ = c.dropPace() // fails on a closed connection
}

func (c *PacedConn) dropPace() error {
	c.replacePace(nil)
	return c.Conn.SetWriteDeadline(time.Time{})
}

// replacePace puts a pace in the place of another one; nil: no pace.
func (c *PacedConn) replacePace(p *pace) {
	if old := c.pace.Swap(p); old != nil {
		c.eviction.unpin(old.pin)
	}
	if p != nil {
		c.eviction.pin(p.pin)
	}
}

// OnLost makes Close call lost, unless TakeOver is called first.
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
		n, _, err := c.writeSocket(b)
		c.wait.end() // such a client may pause as long as it likes
		return n, err
	}
	sent, lastProgress := 0, time.Now()
	defer c.wait.end()
	for {
		stall := c.eviction.StallTimeout(p.stall)
		if err := c.Conn.SetWriteDeadline(time.Now().Add(min(stall/StallChecks, RecheckInterval))); err != nil {
			return sent, err
		}
		began := time.Now()
		n, waited, err := c.writeSocket(b[sent:])
		sent += n
		if p.pin != nil {
			p.pin.addProgress(n, time.Since(began)-waited)
		}
		lastProgress = lastProgress.Add(waited) // the client does not cause a wait for the permit
		if n > 0 {
			lastProgress = time.Now()
		}
		switch evicted := p.pin.evictionReason(); {
		case evicted != nil:
			c.Cut()
			return sent, evicted
		case err == nil:
			return sent, nil
		case !errors.Is(err, os.ErrDeadlineExceeded):
			return sent, err
		case time.Since(lastProgress) >= stall:
			return sent, c.abort()
		}
	}
}

// writeSocket writes b to the socket, and notes in wait that it waits. Without room it releases the
// CPU permit until there is some; waited is how long it then took to acquire the permit.
func (c *PacedConn) writeSocket(b []byte) (n int, waited time.Duration, err error) {
	if c.permit.held {
		return writeReleasing(c.Conn, c.permit.limiter, &c.wait, b)
	}
	c.wait.begin(len(b))
	if n, err = c.Conn.Write(b); n > 0 {
		c.wait.end()
	}
	return n, 0, err
}

// writeWithoutPermit writes b, and releases the CPU permit until it is written.
func writeWithoutPermit(c net.Conn, cpu *CPULimiter, wait *ClientWait, b []byte) (n int, waited time.Duration,
	err error) {
	cpu.Release()
	wait.begin(len(b))
	if n, err = c.Write(b); n > 0 {
		wait.end()
	}
	return n, cpu.Acquire(), err
}

// abort resets the connection of a client that stalled. After a clean end, the kernel would keep
// what the client does not take and go on offering it; and TLS would wait to say goodbye.
func (c *PacedConn) abort() error {
	c.stalled.Store(true)
	c.Cut()
	return ErrStalled
}

// Wait is how long a paced write has waited for the client; nil has none.
func (c *PacedConn) Wait() *ClientWait {
	if c == nil {
		return nil
	}
	return &c.wait
}

// ReasonOf is why what is sent on the connection failed, whose error is err. Nil knows no better.
func (c *PacedConn) ReasonOf(err error) error {
	if c != nil && c.stalled.Load() {
		return ErrStalled
	}
	return err
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
		case tlsconn.LayeredConn:
			c = v.NetConn()
		default:
			return nil
		}
	}
}

// ResetConn cuts a connection, and then closes what wraps it: TLS alone would wait to say goodbye.
func ResetConn(c net.Conn) {
	if p := PacedConnOf(c); p != nil {
		p.Cut()
	}
	_ = c.Close()
}

// AddressOf is the IP address of a connection's other end; none for a unix socket.
func AddressOf(a net.Addr) netip.Addr {
	if tcp, ok := a.(*net.TCPAddr); ok {
		return tcp.AddrPort().Addr()
	}
	return netip.Addr{}
}
