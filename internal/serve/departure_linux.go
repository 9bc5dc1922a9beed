package serve

import (
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"syscall"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"
)

// departures tells when clients leave whose connections nobody is reading. One epoll watches their sockets for the peer's
// end; it is itself watched by Go's poller, so that the one goroutine here parks no thread. A goroutine per request reading
// ahead would cost more and take bytes that belong to the next request.
//
// Invariant: gone is called at most once per watch, and never after its stop has returned. A descriptor may be reused
// as soon as its connection is closed, so events carry a number that is not.
type departures struct {
	file *os.File // the epoll
	raw  syscall.RawConn
	done chan struct{}
	mu   sync.Mutex
	last uint64
	gone map[uint64]func()
}

// newDepartures starts watching. Without an epoll (out of descriptors) it returns nil, which watches nothing:
// requests are then cancelled only when their answer cannot be written.
func newDepartures(log *zap.Logger) *departures {
	d, err := openDepartures()
	if err != nil {
		log.Warn("clients that leave will not be noticed before their answer is ready; raise the limit of open files", zap.Error(err))
		return nil
	}
	go d.run()
	return d
}

func openDepartures() (*departures, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("epoll_create1: %w", err)
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("making an epoll non-blocking: %w", err)
	}
	file := os.NewFile(uintptr(fd), "departures")
	raw, err := file.SyscallConn()
	if err != nil {
		_ = file.Close()
		return nil, fmt.Errorf("polling an epoll: %w", err)
	}
	return &departures{file: file, raw: raw, done: make(chan struct{}), gone: make(map[uint64]func())}, nil
}

// watch calls gone once if the peer of c ends or resets the connection before stop is called. gone must not block.
func (d *departures) watch(c net.Conn, gone func()) (stop func()) {
	conn := rawConn(c)
	if d == nil || conn == nil {
		return func() {}
	}
	d.mu.Lock()
	d.last++
	id := d.last
	d.gone[id] = gone
	d.mu.Unlock()
	event := unix.EpollEvent{Events: unix.EPOLLRDHUP | unix.EPOLLONESHOT, Fd: int32(uint32(id)), Pad: int32(uint32(id >> 32))}
	// If the connection is closed already, whoever reads or writes it learns so without us.
	_ = d.control(conn, unix.EPOLL_CTL_ADD, &event)
	return func() {
		d.mu.Lock()
		delete(d.gone, id)
		d.mu.Unlock()
		_ = d.control(conn, unix.EPOLL_CTL_DEL, nil)
	}
}

func (d *departures) control(conn syscall.RawConn, op int, event *unix.EpollEvent) error {
	var failed error
	err := d.raw.Control(func(epoll uintptr) {
		failed = conn.Control(func(fd uintptr) { _ = unix.EpollCtl(int(epoll), op, int(fd), event) })
	})
	return errors.Join(err, failed)
}

func (d *departures) run() {
	defer close(d.done)
	events := make([]unix.EpollEvent, 64)
	for {
		var n int
		err := d.raw.Read(func(fd uintptr) bool {
			n, _ = unix.EpollWait(int(fd), events, 0)
			return n > 0
		})
		if err != nil {
			return // closed
		}
		for _, e := range events[:n] {
			d.left(uint64(uint32(e.Fd)) | uint64(uint32(e.Pad))<<32)
		}
	}
}

func (d *departures) left(id uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if gone, ok := d.gone[id]; ok {
		delete(d.gone, id)
		gone()
	}
}

// close stops watching.
func (d *departures) close() {
	if d == nil {
		return
	}
	_ = d.file.Close()
	<-d.done
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
		case interface{ NetConn() net.Conn }: // crypto/tls, and wrappers that follow its example
			c = v.NetConn()
		default:
			return nil
		}
	}
}
