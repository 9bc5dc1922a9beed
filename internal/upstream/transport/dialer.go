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
	// muteAfter is how long a connection must have waited for a word when it is closed for its
	// address to count as mute. It is less than any of the times after which a connection is given
	// up (see health.go).
	muteAfter = 3 * time.Second
	// muteFor is how long connections are made to other addresses then, if there are any that take
	// them.
	muteFor = time.Minute
)

// dialer connects to a host that may have several addresses, of which net.Dialer takes the first
// that accepts a connection, and so always the same. Whether a server answers there, it cannot
// know: a host that hangs, or whatever stands before one that is gone, accepts as ever, and each
// new connection would find that out anew, for as long as that lasts. So addresses that are mute
// are left out as long as another one accepts. It decides nothing else: with one address, or where
// all are alike, it is a net.Dialer.
type dialer struct {
	net.Dialer
	mutes *mutes
}

var errMute = errors.New("no server has answered there lately")

func newDialer() *dialer {
	return &dialer{mutes: &mutes{}, Dialer: net.Dialer{
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
	choosy := d.Dialer
	choosy.ControlContext = func(_ context.Context, network, address string, c syscall.RawConn) error {
		if d.mutes.has(address) {
			left.Store(true)
			return errMute
		}
		return limitUnacknowledged(network, address, c)
	}
	conn, err := choosy.DialContext(ctx, network, address)
	if err != nil && left.Load() && ctx.Err() == nil {
		conn, err = d.Dialer.DialContext(ctx, network, address)
	}
	if err != nil {
		return nil, err
	}
	return &listened{Conn: rawio.NewConn(conn), mutes: d.mutes, there: d.mutes.at(conn.RemoteAddr().String())}, nil
}

// mutes are the addresses where connections were given up that waited for a word. What the mirrors
// find out within seconds, by asking for signs of life, all transports to one upstream go by: those
// that have idle connections let go of them, since they would be the next to wait.
type mutes struct {
	mu         sync.Mutex
	until      map[string]time.Time
	heard      map[string]*atomic.Int64 // when something was last read from an address, in Unix nanoseconds
	transports []weak.Pointer[http.Transport]
}

// concern has a transport's idle connections closed when an address goes mute, for as long as the
// transport is in use.
func (m *mutes) concern(t *http.Transport) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.transports = slices.DeleteFunc(m.transports, func(p weak.Pointer[http.Transport]) bool { return p.Value() == nil })
	m.transports = append(m.transports, weak.Make(t))
}

func (m *mutes) has(address string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	until, ok := m.until[address]
	if ok && time.Now().After(until) {
		delete(m.until, address)
		ok = false
	}
	return ok
}

// at is where reads from an address are noted.
func (m *mutes) at(address string) *atomic.Int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.heard == nil {
		m.heard = map[string]*atomic.Int64{}
	}
	if m.heard[address] == nil {
		m.heard[address] = &atomic.Int64{}
	}
	return m.heard[address]
}

// add notes that a connection to an address waited in vain.
func (m *mutes) add(address string) {
	m.mu.Lock()
	if m.until == nil {
		m.until = map[string]time.Time{}
	}
	m.until[address] = time.Now().Add(muteFor)
	m.mu.Unlock()
	m.closeIdle()
}

// closeIdle closes the idle connections of all transports. The caller may hold locks of theirs.
func (m *mutes) closeIdle() {
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
func (m *mutes) remove(address string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.until, address)
}

// listened is a connection that knows whether it waits for a word: something was written, and
// nothing read since.
type listened struct {
	net.Conn
	mutes *mutes
	there *atomic.Int64 // when any connection to the address was last read from
	heard atomic.Bool   // anything, ever
	asked atomic.Int64  // when that was written, in Unix nanoseconds; 0: nothing is waited for
	once  sync.Once
}

// Read implements net.Conn.
func (c *listened) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 {
		c.asked.Store(0)
		c.there.Store(time.Now().UnixNano())
		if !c.heard.Swap(true) {
			c.mutes.remove(c.RemoteAddr().String())
		}
	}
	return n, err
}

// Write implements net.Conn.
func (c *listened) Write(b []byte) (int, error) {
	c.asked.CompareAndSwap(0, time.Now().UnixNano())
	return c.Conn.Write(b)
}

// Close implements net.Conn. A connection that is closed while an answer has been due for long was
// given up. If another connection has heard from there meanwhile, it is the answer alone that is
// slow.
func (c *listened) Close() error {
	c.once.Do(func() {
		if asked := c.asked.Load(); asked != 0 && c.there.Load() < asked && time.Since(time.Unix(0, asked)) >= muteAfter {
			c.mutes.add(c.RemoteAddr().String())
		}
	})
	return c.Conn.Close()
}

// NetConn is the connection beneath.
func (c *listened) NetConn() net.Conn { return c.Conn }
