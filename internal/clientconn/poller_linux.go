package clientconn

import (
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"
)

// Poller reports events of connections that no goroutine reads or writes: the client left, or a
// socket that was full has room again. One epoll watches the sockets. Go's poller watches the
// epoll, so that the one goroutine here blocks no thread. A goroutine for each request that reads
// ahead would cost more, and take bytes of the next request.
//
// Invariant: gone is called at most once per watch, and nothing is called after its stop has
// returned. A descriptor may be reused as soon as its connection is closed, so events carry a
// number that is not.
type Poller struct {
	// Static after construction.
	file *os.File // the epoll
	raw  syscall.RawConn
	done chan struct{}

	mu      sync.Mutex
	lastID  uint64
	handles map[uint64]*PollHandle // by id
}

// PollHandle is a connection of a poller: a watched one (Watch), or an attended one (AttendConn).
// Nil is one that is neither.
type PollHandle struct {
	// Static after construction.
	poller     *Poller
	conn       syscall.RawConn
	id         uint64
	onGone     func() // nil: attended
	onReadable func() // nil: watched

	onRoom  func()      // guarded by poller.mu for a watched connection, else static; nil: NotifyRoom was not called
	hasLeft atomic.Bool // the peer of an attended connection has ended it
}

func (w *PollHandle) isAttended() bool { return w.onReadable != nil }

// NewPoller starts watching. Without an epoll (out of descriptors) it returns nil, which watches
// nothing: requests are then cancelled only when their answer cannot be written.
func NewPoller(log *zap.Logger) *Poller {
	p, err := openPoller()
	if err != nil {
		log.Warn("clients that leave will not be noticed before their answer is ready; raise the limit of open files",
			zap.Error(err))
		return nil
	}
	go p.run()
	return p
}

func openPoller() (*Poller, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("epoll_create1: %w", err)
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("making an epoll non-blocking: %w", err)
	}
	file := os.NewFile(uintptr(fd), "poller")
	raw, err := file.SyscallConn()
	if err != nil {
		_ = file.Close()
		return nil, fmt.Errorf("polling an epoll: %w", err)
	}
	return &Poller{file: file, raw: raw, done: make(chan struct{}), handles: make(map[uint64]*PollHandle)}, nil
}

// Watch calls gone once if the peer of c ends or resets the connection before stop is called. gone
// must not block. A connection without a socket is not watched: the result is nil.
func (p *Poller) Watch(c net.Conn, gone func()) *PollHandle {
	conn := rawConn(c)
	if p == nil || conn == nil {
		return nil
	}
	w := &PollHandle{poller: p, conn: conn, onGone: gone}
	p.register(w)
	// If the connection is closed already, its next read or write fails.
	_ = w.control(unix.EPOLL_CTL_ADD, unix.EPOLLRDHUP|unix.EPOLLONESHOT)
	return w
}

// register gives a connection its id.
func (p *Poller) register(w *PollHandle) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lastID++
	w.id = p.lastID
	p.handles[w.id] = w
}

// AttendConn calls ready whenever bytes have arrived or the peer has ended the connection, and room
// whenever the socket has room, at least after it had none. Neither may block. Since no lock is
// held meanwhile, a call may still run after Stop has returned. AttendConn returns nil if the
// connection cannot be watched.
func (p *Poller) AttendConn(conn syscall.RawConn, ready, room func()) *PollHandle {
	w := &PollHandle{poller: p, conn: conn, onReadable: ready, onRoom: room}
	p.register(w)
	if w.control(unix.EPOLL_CTL_ADD, unix.EPOLLIN|unix.EPOLLRDHUP|unix.EPOLLOUT|unix.EPOLLET) != nil {
		w.Stop()
		return nil
	}
	return w
}

// NotifyRoom calls room, from now on, whenever the socket has room after it had none; and once if
// it has some now. room must not block.
func (w *PollHandle) NotifyRoom(room func()) {
	w.poller.mu.Lock()
	w.onRoom = room
	w.poller.mu.Unlock()
	// It fails on a closed connection, as the next write does.
	_ = w.control(unix.EPOLL_CTL_MOD, unix.EPOLLRDHUP|unix.EPOLLOUT|unix.EPOLLET)
}

// Socket is the socket of the connection.
func (w *PollHandle) Socket() syscall.RawConn { return w.conn }

// Stop ends the calls.
func (w *PollHandle) Stop() {
	if w == nil {
		return
	}
	w.poller.mu.Lock()
	delete(w.poller.handles, w.id)
	w.poller.mu.Unlock()
	_ = w.control(unix.EPOLL_CTL_DEL, 0)
}

func (w *PollHandle) control(op int, events uint32) error {
	event := unix.EpollEvent{Events: events, Fd: int32(uint32(w.id)),
		Pad: int32(uint32(w.id >> 32))} // #nosec G115 -- the halves of an id
	var failed error
	err := w.poller.raw.Control(func(epoll uintptr) {
		var refused error
		failed = w.conn.Control(func(fd uintptr) { refused = unix.EpollCtl(int(epoll), op, int(fd), &event) })
		failed = errors.Join(failed, refused)
	})
	return errors.Join(err, failed)
}

func (p *Poller) run() {
	defer close(p.done)
	events := make([]unix.EpollEvent, 256)
	for {
		var n int
		err := p.raw.Read(func(fd uintptr) bool {
			n, _ = unix.EpollWait(int(fd), events, 0)
			return n > 0
		})
		if err != nil {
			return // closed
		}
		for _, e := range events[:n] {
			p.dispatch(uint64(uint32(e.Fd))|uint64(uint32(e.Pad))<<32, e.Events) // #nosec G115 -- the halves of an id
		}
	}
}

// departureEvents say that the peer has ended or reset a connection.
const departureEvents = unix.EPOLLRDHUP | unix.EPOLLHUP | unix.EPOLLERR

// dispatch makes the calls for an event of a watched connection.
func (p *Poller) dispatch(id uint64, events uint32) {
	if w := p.notifyWatched(id, events); w != nil {
		w.notifyAttended(events)
	}
}

// notifyWatched calls onGone or onRoom with mu held, so that neither is called after Stop. It
// returns an attended connection instead.
func (p *Poller) notifyWatched(id uint64, events uint32) (attended *PollHandle) {
	p.mu.Lock()
	defer p.mu.Unlock()
	w := p.handles[id]
	switch {
	case w == nil:
	case w.isAttended():
		return w
	case events&departureEvents != 0:
		delete(p.handles, id)
		w.onGone()
	case w.onRoom != nil:
		w.onRoom()
	}
	return nil
}

// notifyAttended calls onRoom and onReadable for an event, without a lock: Stop may have returned.
// Each event reports room, whether or not there was some before.
func (w *PollHandle) notifyAttended(events uint32) {
	if events&unix.EPOLLOUT != 0 {
		w.onRoom()
	}
	if events&departureEvents != 0 {
		w.hasLeft.Store(true)
	}
	if events&^unix.EPOLLOUT != 0 {
		w.onReadable()
	}
}

// HasLeft reports that the peer of an attended connection has ended it.
func (w *PollHandle) HasLeft() bool { return w.hasLeft.Load() }

// Close stops watching.
func (p *Poller) Close() {
	if p == nil {
		return
	}
	_ = p.file.Close()
	<-p.done
}
