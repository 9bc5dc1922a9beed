package transport

import (
	"context"
	"errors"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"weak"

	"spillway/internal/rawio"
)

const (
	// unresponsiveAfter: an address counts as unresponsive if a connection to it is closed after it
	// has waited for a byte for this long. It is less than any of the times after which a connection
	// is given up (pingTimeout, handshakeTimeout).
	unresponsiveAfter = 3 * time.Second
	// avoidDuration is how long an unresponsive address is avoided, if another one accepts.
	avoidDuration = time.Minute
)

// dialer connects to a host that may have several addresses, of which net.Dialer takes the first
// that accepts a connection, and so always the same. Whether a server answers there, it cannot
// know: a host that hangs, or a load balancer before one that is gone, accepts, and each new
// connection would find that out again, for as long as that lasts. So unresponsive addresses are
// left out as long as another one accepts. It decides nothing else: with one address, or where all
// are alike, it is a net.Dialer.
type dialer struct {
	net.Dialer
	unresponsive *unresponsiveAddrs
}

var errUnresponsive = errors.New("no server has answered there lately")

func newDialer() *dialer {
	return &dialer{unresponsive: &unresponsiveAddrs{}, Dialer: net.Dialer{
		Timeout: dialTimeout,
		KeepAliveConfig: net.KeepAliveConfig{
			Enable: true, Idle: keepaliveIdle, Interval: keepaliveProbe,
			Count: int((unacknowledged - keepaliveIdle) / keepaliveProbe),
		},
		Control: limitUnacknowledged,
	}}
}

// DialContext connects to an address that answers, or else to any.
func (d *dialer) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	var left atomic.Bool
	avoiding := d.Dialer
	avoiding.ControlContext = func(_ context.Context, network, address string, c syscall.RawConn) error {
		if d.unresponsive.has(address) {
			left.Store(true)
			return errUnresponsive
		}
		return limitUnacknowledged(network, address, c)
	}
	conn, err := avoiding.DialContext(ctx, network, address)
	if err != nil && left.Load() && ctx.Err() == nil {
		conn, err = d.Dialer.DialContext(ctx, network, address)
	}
	if err != nil {
		return nil, err
	}
	return &trackedConn{
		Conn: rawio.NewConn(conn), unresponsive: d.unresponsive,
		lastRead: d.unresponsive.lastReadOf(conn.RemoteAddr().String()),
	}, nil
}

// unresponsiveAddrs are the addresses where connections were given up that waited for a byte. The
// mirrors find them within seconds, by asking for signs of life, and all transports to one upstream
// use what they found: they close their idle connections, which would be the next to wait.
type unresponsiveAddrs struct {
	mu         sync.Mutex
	until      map[string]time.Time
	lastRead   map[string]*atomic.Int64 // when something was last read from an address, in Unix nanoseconds
	transports []weak.Pointer[http.Transport]
}

// closeIdleOf registers a transport, for as long as it is in use, to have its idle connections
// closed when an address becomes unresponsive.
func (m *unresponsiveAddrs) closeIdleOf(t *http.Transport) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.transports = slices.DeleteFunc(m.transports, func(p weak.Pointer[http.Transport]) bool { return p.Value() == nil })
	m.transports = append(m.transports, weak.Make(t))
}

func (m *unresponsiveAddrs) has(address string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	until, ok := m.until[address]
	if ok && time.Now().After(until) {
		delete(m.until, address)
		ok = false
	}
	return ok
}

// lastReadOf is where the time of the last read from an address is kept.
func (m *unresponsiveAddrs) lastReadOf(address string) *atomic.Int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.lastRead == nil {
		m.lastRead = map[string]*atomic.Int64{}
	}
	if m.lastRead[address] == nil {
		m.lastRead[address] = &atomic.Int64{}
	}
	return m.lastRead[address]
}

// add notes that a connection to an address waited in vain.
func (m *unresponsiveAddrs) add(address string) {
	m.mu.Lock()
	if m.until == nil {
		m.until = map[string]time.Time{}
	}
	m.until[address] = time.Now().Add(avoidDuration)
	m.mu.Unlock()
	m.closeIdle()
}

// closeIdle closes the idle connections of all transports. The caller may hold locks of theirs.
func (m *unresponsiveAddrs) closeIdle() {
	m.mu.Lock()
	transports := slices.Clone(m.transports)
	m.mu.Unlock()
	for _, p := range transports {
		if t := p.Value(); t != nil {
			go t.CloseIdleConnections()
		}
	}
}

// remove notes that a server speaks at an address.
func (m *unresponsiveAddrs) remove(address string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.until, address)
}

// trackedConn is a connection that knows whether it waits for a byte: something was written, and
// nothing read since.
type trackedConn struct {
	net.Conn
	unresponsive *unresponsiveAddrs
	lastRead     *atomic.Int64 // when any connection to the address was last read from
	anyRead      atomic.Bool   // anything, ever
	waitingSince atomic.Int64  // when the first unanswered write was, in Unix nanoseconds; 0: nothing is waited for
	once         sync.Once
}

// Read implements net.Conn.
func (c *trackedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 {
		c.waitingSince.Store(0)
		c.lastRead.Store(time.Now().UnixNano())
		if !c.anyRead.Swap(true) {
			c.unresponsive.remove(c.RemoteAddr().String())
		}
	}
	return n, err
}

// Write implements net.Conn.
func (c *trackedConn) Write(b []byte) (int, error) {
	c.waitingSince.CompareAndSwap(0, time.Now().UnixNano())
	return c.Conn.Write(b)
}

// Close implements net.Conn. A connection that is closed while an answer has been due for long was
// given up. If another connection has read from the address meanwhile, only the answer is slow.
func (c *trackedConn) Close() error {
	c.once.Do(func() {
		since := c.waitingSince.Load()
		if since != 0 && c.lastRead.Load() < since && time.Since(time.Unix(0, since)) >= unresponsiveAfter {
			c.unresponsive.add(c.RemoteAddr().String())
		}
	})
	return c.Conn.Close()
}

// NetConn is the connection beneath.
func (c *trackedConn) NetConn() net.Conn { return c.Conn }
