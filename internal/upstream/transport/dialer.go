package transport

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"spillway/internal/rawio"
)

// dialer connects to a host that may have several addresses. net.Dialer takes the first that
// accepts, and so always the same. But an address may accept and never answer: its host hangs, or a
// load balancer is in front of one that is gone. So the dialer passes over unresponsive addresses
// while another one accepts. It decides nothing else: with one address, or where all are alike, it
// is a net.Dialer.
type dialer struct {
	net.Dialer
	addresses *addressTable
}

var errUnresponsive = errors.New("no server has answered there lately")

func newDialer(addresses *addressTable) *dialer {
	return &dialer{addresses: addresses, Dialer: net.Dialer{
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
	var hasAvoided atomic.Bool
	selective := d.Dialer
	selective.ControlContext = func(_ context.Context, network, address string, c syscall.RawConn) error {
		if d.addresses.isUnresponsive(address) {
			hasAvoided.Store(true)
			return errUnresponsive
		}
		return limitUnacknowledged(network, address, c)
	}
	conn, err := selective.DialContext(ctx, network, address)
	if err != nil && hasAvoided.Load() && ctx.Err() == nil {
		conn, err = d.Dialer.DialContext(ctx, network, address)
	}
	if err != nil {
		return nil, err
	}
	return &trackedConn{
		Conn: rawio.NewConn(conn), addresses: d.addresses, address: d.addresses.acquire(conn.RemoteAddr().String()),
	}, nil
}

// trackedConn is a connection that knows whether it waits for a byte: something was written, and
// nothing read since.
type trackedConn struct {
	net.Conn
	addresses    *addressTable
	address      *address
	hasRead      atomic.Bool  // anything, ever
	waitingSince atomic.Int64 // when the first unanswered write was, in Unix nanoseconds; 0: nothing is waited for
	closing      sync.Once
}

// Read implements net.Conn.
func (c *trackedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 {
		c.waitingSince.Store(0)
		c.address.lastRead.Store(time.Now().UnixNano())
		if !c.hasRead.Swap(true) {
			c.addresses.markResponsive(c.address)
		}
	}
	return n, err
}

// Write implements net.Conn.
func (c *trackedConn) Write(b []byte) (int, error) {
	c.waitingSince.CompareAndSwap(0, time.Now().UnixNano())
	return c.Conn.Write(b)
}

// Close implements net.Conn.
func (c *trackedConn) Close() error {
	c.closing.Do(func() {
		if c.isGivenUp() {
			c.addresses.markUnresponsive(c.address)
		}
		c.addresses.release(c.address)
	})
	return c.Conn.Close()
}

// isGivenUp reports that a connection which closes has waited for too long. If another connection
// has read from the address meanwhile, only the answer is slow.
func (c *trackedConn) isGivenUp() bool {
	since := c.waitingSince.Load()
	return since != 0 && c.address.lastRead.Load() < since && time.Since(time.Unix(0, since)) >= unresponsiveAfter
}

// NetConn is the connection beneath.
func (c *trackedConn) NetConn() net.Conn { return c.Conn }
