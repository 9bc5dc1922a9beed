package wire

import (
	"runtime"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// packetThread is the thread that carries packets between two devices.
type packetThread struct {
	a, b *device
	stop atomic.Bool
	done chan struct{}
}

// A carrier that found nothing looks again after pause: what a network card may wait before it
// interrupts, to do so once for many packets. One that was woken for each would cost the sender as
// much as the receiver's half does.
const pause = 200 * time.Microsecond

// turn is how many packets are carried one way before the other is looked at.
const turn = 64

func newCarrier(a, b *device) *packetThread {
	c := &packetThread{a: a, b: b, done: make(chan struct{})}
	go c.run()
	return c
}

// run carries until close. It keeps its thread, which sleeps by itself: the runtime sleeps a
// millisecond at least.
func (c *packetThread) run() {
	defer close(c.done)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	packet := make([]byte, 1<<17) // the largest, with its header
	nap := unix.NsecToTimespec(pause.Nanoseconds())
	for !c.stop.Load() {
		if carry(c.a, c.b, packet)+carry(c.b, c.a, packet) == 0 {
			_ = unix.Nanosleep(&nap, nil) // a signal ends it early, which does no harm
		}
	}
}

// carry takes what waits in one device to the other, and returns how many packets that were. One
// that the other does not take is lost, as on any network, and TCP sends it again.
func carry(from, to *device, packet []byte) int {
	for n := range turn {
		size, err := unix.Read(from.fd, packet)
		if err != nil || size <= 0 {
			return n
		}
		_, _ = unix.Write(to.fd, packet[:size])
	}
	return turn
}

func (c *packetThread) close() {
	c.stop.Store(true)
	<-c.done
	c.a.close()
	c.b.close()
}
