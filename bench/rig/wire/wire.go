// Package wire is a network between the servers of this machine and clients on it, so that a server
// is charged for its own half of the work alone. Over loopback the receiver's half of TCP runs
// within the sender's call, on the sender's account: half of what a send costs there, and the same
// for each sender, so it hides how the senders differ. A machine whose clients are on other
// machines does not pay for it.
//
// The clients' sockets are in a network namespace of their own, with a TUN device there and one
// here; a thread carries packets from one to the other, and looks for them every so often, as a
// network card does that coalesces interrupts. What clients receive is on the account of that
// thread. Servers stay on loopback, and clients reach them by the addresses they have there.
package wire

import (
	"fmt"
	"net"
	"os"
	"runtime"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Wire is one such network. All methods of a nil Wire do as if there were none: clients are on
// loopback.
type Wire struct {
	carrier *packetThread
	calls   chan func() // for the thread in the clients' namespace
}

// The addresses of the two ends, of a net that is for measurements of networks (RFC 2544).
var (
	here  = &net.IPNet{IP: net.IPv4(198, 18, 0, 1), Mask: net.CIDRMask(24, 32)}
	there = &net.IPNet{IP: net.IPv4(198, 18, 0, 2), Mask: net.CIDRMask(24, 32)}
)

// New makes a wire, which takes CAP_NET_ADMIN, CAP_SYS_ADMIN and /dev/net/tun. Close it.
func New() (*Wire, error) {
	w := &Wire{calls: make(chan func())}
	server, err := newDevice(fmt.Sprintf("wire%d", os.Getpid()%1e6))
	if err != nil {
		return nil, err
	}
	if err := server.up(here); err != nil {
		server.close()
		return nil, err
	}
	moved := make(chan error)
	go w.clients(moved)
	if err := <-moved; err != nil {
		server.close()
		return nil, err
	}
	var client *device
	err = w.Enter(func() (err error) {
		if client, err = newDevice("wire"); err != nil {
			return err
		}
		if err = client.up(there); err == nil {
			err = client.routeLoopback()
		}
		if err != nil {
			client.close()
		}
		return err
	})
	if err != nil {
		close(w.calls)
		server.close()
		return nil, err
	}
	w.carrier = newCarrier(server, client)
	return w, nil
}

// clients is the thread in the clients' namespace. It is never unlocked, so it ends with its
// goroutine, and the namespace with its last socket.
func (w *Wire) clients(moved chan<- error) {
	runtime.LockOSThread()
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		moved <- fmt.Errorf("a network namespace for clients: %w; it takes root", err)
		return
	}
	moved <- nil
	for f := range w.calls {
		f()
	}
}

// Enter runs f where the clients are: the sockets that it makes belong to their network, whichever
// process uses them later.
func (w *Wire) Enter(f func() error) error {
	if w == nil {
		return f()
	}
	result := make(chan error)
	w.calls <- func() { result <- f() }
	return <-result
}

// Close takes the wire away; connections by it get no further.
func (w *Wire) Close() {
	if w == nil {
		return
	}
	w.carrier.close()
	close(w.calls)
}

// routeLoopback sends what goes to addresses of loopback through the device. The namespace's own
// loopback device is down.
func (d *device) routeLoopback() error {
	return d.configured("the route to loopback", func(link netlink.Link) error {
		return netlink.RouteAdd(&netlink.Route{
			LinkIndex: link.Attrs().Index, Dst: &net.IPNet{IP: net.IPv4(127, 0, 0, 0), Mask: net.CIDRMask(8, 32)}, Src: there.IP,
			Scope: netlink.SCOPE_LINK,
		})
	})
}
