package clientconn

import (
	"bytes"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap"
)

// polledPair is a PolledConn over TLS and its client. ready and room have a value once they were
// called.
type polledPair struct {
	*PolledConn
	client      *tls.Conn
	far         net.Conn // below it
	ready, room chan struct{}
}

// newPolledPair makes a pair; cut, if it is not nil, wraps what the client sends through.
func newPolledPair(t *testing.T, stall time.Duration, cut func(net.Conn) net.Conn) *polledPair {
	t.Helper()
	poller := NewPoller(zap.NewNop())
	t.Cleanup(poller.Close)
	identity := httptest.NewUnstartedServer(nil)
	identity.StartTLS()
	defer identity.Close()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	far, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	near, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	tuneTCP(near)
	paced := New(near, nil, &EvictionPolicy{})
	paced.tls = true
	server := paced.Secure(&tls.Config{Certificates: identity.TLS.Certificates})
	if cut != nil {
		far = cut(far)
	}
	p := &polledPair{far: far, client: tls.Client(far, &tls.Config{InsecureSkipVerify: true}),
		ready: make(chan struct{}, 1), room: make(chan struct{}, 1)}
	t.Cleanup(func() { _, _ = far.Close(), server.Close() })
	var shaken sync.WaitGroup
	shaken.Go(func() { _ = p.client.Handshake() })
	if err := server.Handshake(); err != nil {
		t.Fatal(err)
	}
	shaken.Wait()
	if err := paced.SetPace(stall, 0); err != nil {
		t.Fatal(err)
	}
	p.PolledConn = NewPolledConn(server, poller)
	ring := func(c chan struct{}) func() {
		return func() {
			select {
			case c <- struct{}{}:
			default:
			}
		}
	}
	if err := p.Open(ring(p.ready), ring(p.room)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

// readAll reads until the client ends the connection.
func (p *polledPair) readAll() (all []byte, err error) {
	b := make([]byte, 1000)
	for {
		<-p.ready
		p.ReadAgain()
		for err = nil; err == nil; {
			var n int
			n, err = p.Read(b)
			all = append(all, b[:n]...)
		}
		if _, none := err.(wouldBlock); !none { //nolint:errorlint // nothing wraps it
			return all, err
		}
	}
}

// What comes is read whole, also when there is nothing to read for now in the middle of a TLS
// record or of its header.
func TestPolledConnReadsCutRecords(t *testing.T) {
	t.Parallel()
	want := make([]byte, 100_000)
	_, _ = rand.Read(want)
	for name, cut := range map[string]func(net.Conn) net.Conn{
		"whole": nil,
		"cut":   func(c net.Conn) net.Conn { return &fragmentingWriter{Conn: c} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPolledPair(t, time.Minute, cut)
			go func() {
				for i := 0; i < len(want); i += 1000 {
					if _, err := p.client.Write(want[i : i+1000]); err != nil {
						t.Error(err)
					}
				}
				_ = p.client.CloseWrite()
			}()
			got, err := p.readAll()
			if !errors.Is(err, io.EOF) || !bytes.Equal(got, want) {
				t.Errorf("%d bytes of %d, %v", len(got), len(want), err)
			}
		})
	}
}

// fragmentingWriter sends every tenth record in pieces, with time between them.
type fragmentingWriter struct {
	net.Conn
	records int
}

func (c *fragmentingWriter) Write(b []byte) (int, error) {
	c.records++
	sent := 0
	if c.records%10 == 0 {
		for _, n := range []int{1, 3, 1, 1, 200} { // within the header, behind it, within the record
			n, err := c.Conn.Write(b[sent:min(sent+n, len(b))])
			if sent += n; err != nil {
				return sent, err
			}
			time.Sleep(time.Millisecond)
		}
	}
	n, err := c.Conn.Write(b[sent:])
	return sent + n, err
}

// What a full socket does not take is sent when there is room, without a byte lost or doubled.
func TestPolledConnSendsWhenThereIsRoom(t *testing.T) {
	t.Parallel()
	p := newPolledPair(t, time.Minute, nil)
	want := make([]byte, 16<<20)
	_, _ = rand.Read(want)
	got := make(chan []byte)
	go func() {
		time.Sleep(10 * time.Millisecond) // the socket fills up
		all, _ := io.ReadAll(p.client)
		got <- all
	}()
	waits := 0
	for rest := want; len(rest) > 0; {
		n, err := p.Write(rest[:min(len(rest), OfferBytesLimit)])
		if err != nil {
			t.Fatal(err)
		}
		rest = rest[n:]
		for done := false; !done; {
			if done, err = p.Flush(); err != nil {
				t.Fatal(err)
			}
			if !done {
				waits++
				<-p.room
			}
		}
	}
	_ = p.conn.Close()
	if all := <-got; !bytes.Equal(all, want) {
		t.Errorf("%d bytes of %d arrived", len(all), len(want))
	}
	if waits == 0 {
		t.Error("the socket was never full")
	}
}

// A client that takes nothing for the stall timeout is evicted.
func TestPolledConnEvictsStalledClients(t *testing.T) {
	t.Parallel()
	p := newPolledPair(t, 200*time.Millisecond, nil)
	for piece := make([]byte, OfferBytesLimit); ; {
		if _, err := p.Write(piece); err != nil {
			t.Fatal(err)
		}
		done, err := p.Flush()
		for ; !done && err == nil; done, err = p.Flush() { // some more may be on its way
			<-p.room
		}
		if err == nil {
			continue
		}
		if !errors.Is(err, ErrStalled) || !p.below.stalled.Load() {
			t.Errorf("%v; the connection says that its client stalled: %v", err, p.below.stalled.Load())
		}
		return
	}
}

// What TLS sends by itself, the answers to key updates, does not pile up for a client that does not
// read them: the connection ends.
func TestPolledConnEndsWithManyUnreadReplies(t *testing.T) {
	t.Parallel()
	p := newPolledPair(t, time.Minute, nil)
	reply := make([]byte, 32)
	for n := 0; ; n += len(reply) {
		if n > 2*repliesLimit {
			t.Fatal("all replies are held")
		}
		if _, err := p.below.Write(reply); err != nil {
			break
		}
	}
	if !p.HasPending() {
		t.Error("the connection has nothing to send")
	}
	p.ReadAgain()
	if _, err := p.Read(reply); !errors.Is(err, errUnread) {
		t.Errorf("the next read returns %v", err)
	}
}

// The end of a connection is read although it arrived together with the last bytes.
func TestPolledConnReadsTheEndBehindBytes(t *testing.T) {
	t.Parallel()
	p := newPolledPair(t, time.Minute, nil)
	if _, err := p.client.Write([]byte("last")); err != nil {
		t.Fatal(err)
	}
	if err := p.far.(*net.TCPConn).CloseWrite(); err != nil { // below TLS: without its goodbye
		t.Fatal(err)
	}
	got, err := p.readAll()
	if string(got) != "last" || !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF) {
		t.Errorf("%q, %v", got, err)
	}
}
