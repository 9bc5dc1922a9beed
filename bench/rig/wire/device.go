package wire

import (
	"errors"
	"fmt"
	"net"
	"os"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// device is a TUN device: what is sent through it is read from fd, and what is written to fd has
// arrived by it. Packets may be as large as TCP makes them, and without checksums, as for a network
// card that cuts and sums by itself (linux/if_tun.h).
type device struct {
	name string
	fd   int
}

// queue is how many packets may wait in a device before they are forwarded: more than are sent at
// once.
const queue = 1 << 15

// newDevice makes one in the namespace of the calling thread.
func newDevice(name string) (*device, error) {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("/dev/net/tun: %w", err)
	}
	d := &device{name: name, fd: fd}
	request, err := unix.NewIfreq(name)
	if err == nil {
		request.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI | unix.IFF_VNET_HDR)
		err = unix.IoctlIfreq(fd, unix.TUNSETIFF, request)
	}
	if err == nil {
		err = unix.IoctlSetInt(fd, unix.TUNSETOFFLOAD, unix.TUN_F_CSUM|unix.TUN_F_TSO4)
	}
	if err != nil {
		d.close()
		return nil, fmt.Errorf("the TUN device %s: %w; it takes root", name, err)
	}
	return d, nil
}

// up gives the device an address, lets addresses of loopback through, and starts it.
func (d *device) up(address *net.IPNet) error {
	// Documentation/networking/ip-sysctl.rst
	for setting, value := range map[string]string{"route_localnet": "1", "rp_filter": "0"} {
		if err := os.WriteFile("/proc/sys/net/ipv4/conf/"+d.name+"/"+setting, []byte(value), 0); err != nil {
			return err
		}
	}
	return d.configured("its address", func(link netlink.Link) error {
		return errors.Join(netlink.AddrAdd(link, &netlink.Addr{IPNet: address}), netlink.LinkSetTxQLen(link, queue),
			netlink.LinkSetUp(link))
	})
}

// configured has something done with the device by its name.
func (d *device) configured(what string, f func(netlink.Link) error) error {
	link, err := netlink.LinkByName(d.name)
	if err == nil {
		err = f(link)
	}
	if err != nil {
		return fmt.Errorf("the TUN device %s: %s: %w", d.name, what, err)
	}
	return nil
}

// close takes the device away.
func (d *device) close() { _ = unix.Close(d.fd) }
