package swarm

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
)

// watch is one watch on a connection of its own.
type watch struct {
	sock *rawConn
	conn net.Conn // rawConn, or TLS over it
	body chunks
	scan scanner

	length int64 // of the body, if in its head; -1 if not
	deaf   bool  // what it says is thrown away unread
}

// startHTTP1 opens all watches, and then reads them with one poller.
func (s *WatchSet) startHTTP1(ctx context.Context, o Options) error {
	p, err := newPoller(s, len(o.Targets))
	if err != nil {
		return err
	}
	s.read(p)
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(o.AtOnce)
	for i, target := range o.Targets {
		if ctx.Err() != nil {
			break
		}
		group.Go(func() error {
			w, rest, err := open(o, target, o.token(i))
			if err != nil {
				return fmt.Errorf("watch %d: %w", i, err)
			}
			w.deaf = o.Every > 1 && i%o.Every != 0
			return p.add(i, w, rest)
		})
	}
	return group.Wait()
}

// open opens one watch and reads the head of its answer, and what came with it.
func open(o Options, target, token string) (_ *watch, rest []byte, err error) {
	w := &watch{}
	if w.sock, err = dial(o.Server.URL, o.Wire); err != nil {
		return nil, nil, err
	}
	defer func() {
		if err != nil {
			_ = w.sock.Close()
		}
	}()
	w.conn = w.sock
	host, _ := url.Parse(o.Server.URL) // dial has
	if host.Scheme == "https" {
		w.conn = tls.Client(w.sock, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"http/1.1"}})
	}
	var head strings.Builder
	fmt.Fprintf(&head, "GET %s HTTP/1.1\r\nHost: %s\r\nAccept: %s\r\nUser-Agent: swarm\r\n", target, host.Host, o.Accept)
	if token != "" {
		fmt.Fprintf(&head, "Authorization: Bearer %s\r\n", token)
	}
	head.WriteString("\r\n")
	if _, err := w.conn.Write([]byte(head.String())); err != nil {
		return nil, nil, err
	}
	var answer []byte
	buffer := make([]byte, 4<<10)
	for {
		n, err := w.conn.Read(buffer)
		if err != nil {
			return nil, nil, fmt.Errorf("the head of the answer: %w", err)
		}
		answer = append(answer, buffer[:n]...)
		if head, body, found := bytes.Cut(answer, []byte("\r\n\r\n")); found {
			if !bytes.HasPrefix(head, []byte("HTTP/1.1 200 ")) {
				return nil, nil, fmt.Errorf("answered %.500q", answer)
			}
			w.length = contentLength(append(head, "\r\n"...))
			return w, body, nil
		}
	}
}

// errEnded says that the server ended a watch cleanly, which is lost all the same.
var errEnded = errors.New("the watch has ended")

// poller reads many connections by one epoll, on one thread.
type poller struct {
	swarm   *WatchSet
	epoll   int
	watches []atomic.Pointer[watch] // each is handed over by the goroutine that opened it
	buffer  []byte
	done    chan struct{}
	stop    int // an eventfd

	// Owned by run.
	delays []int32
	plain  []byte
}

const bufferSize = 256 << 10

func newPoller(s *WatchSet, n int) (*poller, error) {
	epoll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("epoll: %w", err)
	}
	stop, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("eventfd: %w", err)
	}
	p := &poller{swarm: s, epoll: epoll, stop: stop, watches: make([]atomic.Pointer[watch], n),
		buffer: make([]byte, bufferSize), plain: make([]byte, bufferSize), done: make(chan struct{})}
	return p, p.listen(stop, stopped)
}

// stopped is what the epoll says when the poller is to end; anything else is the index of a watch.
const stopped = -1

func (p *poller) listen(fd int, index int32) error {
	return unix.EpollCtl(p.epoll, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: index})
}

// add hands over a watch.
func (p *poller) add(i int, w *watch, rest []byte) error {
	if err := unix.SetNonblock(w.sock.fd, true); err != nil {
		return err
	}
	if _, err := w.body.take(rest, func([]byte) {}); err != nil { // before anything is measured
		return err
	}
	w.sock.polled, w.sock.buffer = true, p.buffer
	p.watches[i].Store(w)
	return p.listen(w.sock.fd, int32(i))
}

func (p *poller) run() {
	defer close(p.done)
	events := make([]unix.EpollEvent, 512)
	for {
		n, err := unix.EpollWait(p.epoll, events, -1)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			p.swarm.lose(fmt.Errorf("epoll: %w", err))
			return
		}
		for _, e := range events[:n] {
			if e.Fd == stopped {
				return
			}
			w, read := p.watches[e.Fd].Load(), p.read
			if w.deaf {
				read = p.discard
			}
			if err := read(w); err != nil {
				p.swarm.lose(err)
				_ = w.sock.Close()
				p.watches[e.Fd].Store(nil)
			}
		}
		p.swarm.took(p.delays)
		p.delays = p.delays[:0]
	}
}

// read takes all that has arrived for a watch.
func (p *poller) read(w *watch) error {
	for {
		n, err := w.conn.Read(p.plain)
		if err == errAgain {
			return nil
		}
		if err != nil {
			return err
		}
		now := time.Now().UnixNano()
		ended, err := w.body.take(p.plain[:n], func(data []byte) {
			w.scan.scan(data, func(nanos int64) { p.delays = append(p.delays, delay(now, nanos)) })
		})
		if ended {
			return errEnded
		}
		if err != nil {
			return err
		}
	}
}

// discard throws away all that has arrived for a watch.
func (p *poller) discard(w *watch) error {
	for {
		n, err := discard(w.sock.fd, p.buffer)
		switch {
		case err == unix.EINTR:
		case err == unix.EAGAIN:
			return nil
		case err != nil:
			return err
		case n == 0:
			return errEnded
		case n < len(p.buffer):
			return nil
		}
	}
}

func (p *poller) close() {
	_, _ = unix.Write(p.stop, []byte{1, 0, 0, 0, 0, 0, 0, 0})
	<-p.done
	for i := range p.watches {
		if w := p.watches[i].Load(); w != nil {
			_ = w.sock.Close()
		}
	}
	_ = unix.Close(p.stop)
	_ = unix.Close(p.epoll)
}
