package simulation

import (
	"bytes"
	"errors"
	"io"
	"net"
	"sync"
	"testing"
)

// cuttingProxy stands between a client and the proxy. Once armed, it cuts the connection of a watch
// when so many deletions have passed, before the frame that follows.
type cuttingProxy struct {
	listener net.Listener
	target   string
	cut      chan struct{} // closed when it has
	done     sync.WaitGroup

	mu    sync.Mutex
	armed bool
	left  int // deletions to let pass
	conns map[net.Conn]struct{}
}

// newRelay makes a relay to a host:port that will let some deletions pass.
func newRelay(t *testing.T, target string, deletions int) *cuttingProxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &cuttingProxy{
		listener: l,
		target:   target,
		left:     deletions,
		cut:      make(chan struct{}),
		conns:    map[net.Conn]struct{}{},
	}
	r.done.Go(r.accept)
	t.Cleanup(r.close)
	return r
}

func (r *cuttingProxy) url() string { return "http://" + r.listener.Addr().String() }

func (r *cuttingProxy) arm() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.armed = true
}

func (r *cuttingProxy) accept() {
	for {
		client, err := r.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", r.target)
		if err != nil {
			client.Close()
			continue
		}
		r.track(client, server)
		r.done.Go(func() {
			_, _ = io.Copy(server, client) // ends when either is closed
			server.Close()
		})
		r.done.Go(func() {
			_ = r.pass(client, server) // likewise
			client.Close()
			server.Close()
		})
	}
}

func (r *cuttingProxy) track(conns ...net.Conn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range conns {
		r.conns[c] = struct{}{}
	}
}

var errCut = errors.New("cut")

// frameStart is how an event begins, and a deletion.
const (
	frameStart    = `{"type":"`
	deletionStart = `{"type":"DELETED"`
)

// pass copies what the proxy sends, and holds back the start of a line for as long as it may be
// that of an event.
func (r *cuttingProxy) pass(client io.Writer, server io.Reader) error {
	var held []byte // of the line, while it may be a deletion; nil after that
	start := true
	buf := make([]byte, 4096)
	for {
		n, err := server.Read(buf)
		var out []byte
		for _, b := range buf[:n] {
			if !start {
				out = append(out, b)
				start = b == '\n'
				continue
			}
			held = append(held, b)
			if full := len(held) == len(deletionStart); bytes.HasPrefix([]byte(deletionStart), held) && !full {
				continue
			} else if bytes.HasPrefix(held, []byte(frameStart)) && r.cuts(full && string(held) == deletionStart) {
				_, _ = client.Write(out) // the client may have gone first
				return errCut
			}
			out, start, held = append(out, held...), b == '\n', nil
		}
		if _, werr := client.Write(out); werr != nil || err != nil {
			return errors.Join(err, werr)
		}
	}
}

// cuts reports whether the connection is to be cut before an event.
func (r *cuttingProxy) cuts(deletion bool) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case !r.armed:
		return false
	case r.left == 0:
		r.armed = false
		close(r.cut)
		return true
	case deletion:
		r.left--
	}
	return false
}

func (r *cuttingProxy) close() {
	r.listener.Close()
	r.mu.Lock()
	for c := range r.conns {
		c.Close()
	}
	r.mu.Unlock()
	r.done.Wait()
}
