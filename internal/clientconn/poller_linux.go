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
// Invariant: of a watched connection (Watch), gone is called at most once, and nothing is called
// after Stop has returned. Of an attended one (AttendConn), a call may still run after Stop. A
// descriptor may be reused as soon as its connection is closed, so events carry an id that is not.
type Poller struct {
	// Static after construction.
	file *os.File // the epoll
	raw  syscall.RawConn
	done chan struct{}

	mu       sync.Mutex
	lastID   uint64
	watched  map[uint64]*WatchedConn // by id
	attended map[uint64]*AttendedConn
}

// registration is a connection in the epoll of a poller. Static after construction.
type registration struct {
	poller *Poller
	conn   syscall.RawConn
	id     uint64
}

// WatchedConn is a connection of which a Poller reports the departure of the peer, and room once
// NotifyRoom was called. Nil is one that is not watched.
type WatchedConn struct {
	registration
	onGone func() // static
	onRoom func() // guarded by poller.mu; nil: NotifyRoom was not called
}

// AttendedConn is a connection of which a Poller reports departure, room, and bytes that have
// arrived. Nil is one that is not attended.
type AttendedConn struct {
	registration
	onReadable, onRoom func()      // static
	hasLeft            atomic.Bool // the peer has ended the connection
}

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
	return &Poller{file: file, raw: raw, done: make(chan struct{}), watched: map[uint64]*WatchedConn{},
		attended: map[uint64]*AttendedConn{}}, nil
}

// Watch calls gone once if the peer of c ends or resets the connection before Stop is called. gone
// runs with the poller's lock held: it must not block, or call Stop, NotifyRoom or Watch. A
// connection without a socket is not watched, and the nil Poller watches none: the result is nil.
func (p *Poller) Watch(c net.Conn, gone func()) *WatchedConn {
	conn := rawConn(c)
	if p == nil || conn == nil {
		return nil
	}
	w := &WatchedConn{onGone: gone}
	p.mu.Lock()
	w.registration = p.registerLocked(conn)
	p.watched[w.id] = w
	p.mu.Unlock()
	// One shot, because the event of a departure would otherwise be reported until Stop is called. If
	// the connection is closed already, its next read or write fails.
	_ = w.control(unix.EPOLL_CTL_ADD, unix.EPOLLRDHUP|unix.EPOLLONESHOT)
	return w
}

// registerLocked gives a connection its id.
func (p *Poller) registerLocked(conn syscall.RawConn) registration {
	p.lastID++
	return registration{poller: p, conn: conn, id: p.lastID}
}

// NotifyRoom calls room, from now on, whenever the socket has room after it had none; and once if
// it has some now. room runs with the poller's lock held, as gone does.
func (w *WatchedConn) NotifyRoom(room func()) {
	w.poller.mu.Lock()
	w.onRoom = room
	w.poller.mu.Unlock()
	// It fails on a closed connection, as the next write does.
	_ = w.control(unix.EPOLL_CTL_MOD, unix.EPOLLRDHUP|unix.EPOLLOUT|unix.EPOLLET)
}

// Socket is the socket of the connection.
func (w *WatchedConn) Socket() syscall.RawConn { return w.conn }

// Stop ends the calls: none runs once it has returned.
func (w *WatchedConn) Stop() {
	if w == nil {
		return
	}
	w.poller.mu.Lock()
	delete(w.poller.watched, w.id)
	w.poller.mu.Unlock()
	_ = w.control(unix.EPOLL_CTL_DEL, 0) // fails on a closed connection, which epoll has dropped
}

// AttendConn calls ready whenever bytes have arrived or the peer has ended the connection, and room
// whenever the socket has room, at least after it had none. Neither may block. They run without a
// lock. AttendConn returns nil if the connection cannot be attended, as with the nil Poller.
func (p *Poller) AttendConn(conn syscall.RawConn, ready, room func()) *AttendedConn {
	if p == nil {
		return nil
	}
	a := &AttendedConn{onReadable: ready, onRoom: room}
	p.mu.Lock()
	a.registration = p.registerLocked(conn)
	p.attended[a.id] = a
	p.mu.Unlock()
	if a.control(unix.EPOLL_CTL_ADD, unix.EPOLLIN|unix.EPOLLRDHUP|unix.EPOLLOUT|unix.EPOLLET) != nil {
		a.Stop()
		return nil
	}
	return a
}

// HasLeft reports that the peer has ended the connection.
func (a *AttendedConn) HasLeft() bool { return a.hasLeft.Load() }

// Stop lets no further call begin. One that has begun may still run.
func (a *AttendedConn) Stop() {
	if a == nil {
		return
	}
	a.poller.mu.Lock()
	delete(a.poller.attended, a.id)
	a.poller.mu.Unlock()
	_ = a.control(unix.EPOLL_CTL_DEL, 0) // as for a WatchedConn
}

// control changes what the epoll reports of the connection.
func (r *registration) control(op int, events uint32) error {
	event := unix.EpollEvent{Events: events}
	event.Fd, event.Pad = packID(r.id)
	var failed error
	err := r.poller.raw.Control(func(epoll uintptr) {
		var refused error
		failed = r.conn.Control(func(fd uintptr) { refused = unix.EpollCtl(int(epoll), op, int(fd), &event) })
		failed = errors.Join(failed, refused)
	})
	return errors.Join(err, failed)
}

// packID makes the data of an event, which the kernel returns as they are, of the halves of an id.
func packID(id uint64) (fd, pad int32) {
	return int32(uint32(id)), int32(uint32(id >> 32)) // #nosec G115 -- the halves of an id
}

// unpackID is the id from which packID made fd and pad.
func unpackID(fd, pad int32) uint64 {
	return uint64(uint32(fd)) | uint64(uint32(pad))<<32 // #nosec G115 -- the halves of an id
}

func (p *Poller) run() {
	defer close(p.done)
	events := make([]unix.EpollEvent, 256)
	for {
		var n int
		err := p.raw.Read(func(fd uintptr) bool {
			n, _ = unix.EpollWait(int(fd), events, 0) // n is negative after an error: Read waits, and tries again
			return n > 0
		})
		if err != nil {
			return // closed
		}
		for _, e := range events[:n] {
			p.dispatch(unpackID(e.Fd, e.Pad), e.Events)
		}
	}
}

// departureEvents say that the peer has ended or reset a connection.
const departureEvents = unix.EPOLLRDHUP | unix.EPOLLHUP | unix.EPOLLERR

// dispatch makes the calls for an event of a connection.
func (p *Poller) dispatch(id uint64, events uint32) {
	p.mu.Lock()
	if w := p.watched[id]; w != nil {
		w.notifyLocked(events)
	}
	a := p.attended[id]
	p.mu.Unlock()
	if a != nil {
		a.notify(events)
	}
}

// notifyLocked calls onGone or onRoom with poller.mu held, so that neither is called after Stop.
func (w *WatchedConn) notifyLocked(events uint32) {
	switch {
	case events&departureEvents != 0:
		delete(w.poller.watched, w.id)
		w.onGone()
	case w.onRoom != nil:
		w.onRoom()
	}
}

// notify calls onRoom and onReadable for an event. EPOLLOUT accompanies every event of a socket
// with room, so onRoom may be called without need.
func (a *AttendedConn) notify(events uint32) {
	if events&unix.EPOLLOUT != 0 {
		a.onRoom()
	}
	if events&departureEvents != 0 {
		a.hasLeft.Store(true)
	}
	if events&^unix.EPOLLOUT != 0 {
		a.onReadable()
	}
}

// Close stops watching.
func (p *Poller) Close() {
	if p == nil {
		return
	}
	_ = p.file.Close()
	<-p.done
}
