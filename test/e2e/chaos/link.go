package chaos

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"syscall"
	"time"
)

// Link carries TCP connections to a target, or to any of some, as well as the weather on it allows.
//
// Toxiproxy was looked at and not taken: unless the connection is new, it closes it in good order
// where it should reset it, drops bytes when a toxic goes while the receiver reads slowly, and ends
// a silent connection where one should stay half-open forever. Namespaces with netem would need
// root wherever the tests run. The link's own sockets lose packets instead (lose): what either end
// sends goes over a leg where a part of it is lost for real, and the end's own TCP has to send it
// again.
type Link struct {
	listener net.Listener
	serving  sync.WaitGroup

	// Guarded by mu.
	mu      sync.Mutex
	targets []string
	weather LinkConditions
	changed chan struct{} // closed when weather changes
	wires   map[*wire]struct{}
	closed  bool
}

// LinkConditions is what a link does to what it carries. The zero value is none.
type LinkConditions struct {
	Held      bool          // nothing arrives until the weather is better; then all of it does
	Silent    bool          // nothing arrives on connections that see this, not even the end of their peers
	Latency   time.Duration // everything arrives later, each way
	Bandwidth int           // bytes per second, connection and direction; 0 is no limit
	Loss      float64       // which part of the packets is lost that the ends send
}

// resend is how long TCP waits before it sends again what was lost, where loss has to be made up.
const resend = 200 * time.Millisecond

// NewLink listens on an address of loopback and carries what arrives there to target.
func NewLink(target string) (*Link, error) { return NewLinkAt("127.0.0.1:0", target) }

// NewLinkAt listens at an address that is given.
func NewLinkAt(address, target string) (*Link, error) {
	listener, err := listen(address)
	if err != nil {
		return nil, fmt.Errorf("a link to %s cannot listen: %w", target, err)
	}
	l := &Link{targets: []string{target}, listener: listener, changed: make(chan struct{}), wires: map[*wire]struct{}{}}
	l.serving.Go(l.accept)
	return l, nil
}

// Address is where the link listens.
func (l *Link) Address() string { return l.listener.Addr().String() }

// Lead makes new connections go to any of these targets, as a balancer does: it does not know which
// of them answers.
func (l *Link) Lead(targets ...string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.targets = targets
}

// Set changes the weather.
func (l *Link) Set(w LinkConditions) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.weather = w
	close(l.changed)
	l.changed = make(chan struct{})
	if noLoss() == nil {
		// those that are accepted are as it is, and a handshake may be lost, too
		_ = lose(l.listener.(*net.TCPListener), w.Loss)
		for wire := range l.wires {
			wire.lose(w.Loss)
		}
	}
	if w.Silent {
		for wire := range l.wires {
			wire.silence()
		}
	}
}

// Reset breaks all connections off: both ends get a RST.
func (l *Link) Reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for wire := range l.wires {
		wire.reset()
	}
}

// Links lead to the same targets from several addresses, and have the same weather, except where
// that of one of them is set.
type Links []*Link

// Lead does so for all.
func (ls Links) Lead(targets ...string) {
	for _, l := range ls {
		l.Lead(targets...)
	}
}

// Set changes the weather on all.
func (ls Links) Set(w LinkConditions) {
	for _, l := range ls {
		l.Set(w)
	}
}

// Reset breaks the connections of all off.
func (ls Links) Reset() {
	for _, l := range ls {
		l.Reset()
	}
}

// Close ends the link and all its connections, and returns when nothing of them is left.
func (l *Link) Close() {
	l.mu.Lock()
	l.closed = true
	_ = l.listener.Close()
	for wire := range l.wires {
		wire.reset()
	}
	l.mu.Unlock()
	l.serving.Wait()
}

func (l *Link) accept() {
	for {
		client, err := l.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err == nil {
			l.serving.Go(func() { l.carry(client) })
		}
	}
}

// carry is one connection's life.
func (l *Link) carry(client net.Conn) {
	w := &wire{client: client, over: make(chan struct{}), deaf: make(chan struct{})}
	l.mu.Lock()
	target, loss := l.targets[rand.IntN(len(l.targets))], l.weather.Loss
	l.mu.Unlock()
	if server, err := dialer(loss).Dial("tcp4", target); err == nil {
		w.server = server
	}
	l.mu.Lock()
	if l.closed || w.server == nil {
		l.mu.Unlock()
		w.reset()
		return
	}
	if l.weather.Silent {
		w.silence()
	}
	if noLoss() == nil {
		w.lose(l.weather.Loss) // it may have changed meanwhile
	}
	l.wires[w] = struct{}{}
	l.mu.Unlock()

	var ways sync.WaitGroup
	ways.Go(func() { l.way(w, w.client, w.server) })
	ways.Go(func() { l.way(w, w.server, w.client) })
	ways.Wait()
	if w.silent() {
		<-w.over // the peer does not notice that an end has gone
	}
	w.close()
	l.mu.Lock()
	delete(l.wires, w)
	l.mu.Unlock()
}

// dialPatience is longer than it takes to get a lost packet through, and short enough not to hold
// up a link's end.
const dialPatience = 10 * time.Second

// dialer makes connections that lose a part of what arrives from their first packet on.
func dialer(loss float64) *net.Dialer {
	d := &net.Dialer{Timeout: dialPatience}
	if loss > 0 && noLoss() == nil {
		d.Control = func(_, _ string, raw syscall.RawConn) (err error) {
			if control := raw.Control(func(fd uintptr) { err = filter(int(fd), loss) }); control != nil {
				return control
			}
			return err
		}
	}
	return d
}

// piece is bytes on their way.
type piece struct {
	bytes []byte
	sent  time.Time
}

// onTheWay is how many pieces a way holds before its sender has to wait: about what the windows of
// TCP do.
const onTheWay = 64

// way carries one direction. Its end is that direction's end alone.
func (l *Link) way(w *wire, from, to net.Conn) {
	pieces := make(chan piece, onTheWay)
	var reading sync.WaitGroup
	reading.Go(func() {
		defer close(pieces)
		for {
			buf := make([]byte, 16<<10)
			n, err := from.Read(buf)
			if n > 0 {
				select {
				case pieces <- piece{buf[:n], time.Now()}:
				case <-w.over:
					return
				}
			}
			if err != nil {
				if !errors.Is(err, io.EOF) && !w.silent() {
					w.reset() // as this end did
				}
				return
			}
		}
	})
	for p := range pieces {
		if l.delay(w, p) {
			if _, err := to.Write(p.bytes); err != nil && !w.silent() {
				w.reset()
			}
		}
	}
	reading.Wait()
	if half, ok := to.(*net.TCPConn); ok && !w.silent() {
		_ = half.CloseWrite()
	}
}

// delay waits until a piece may arrive; false if it never will.
func (l *Link) delay(w *wire, p piece) bool {
	lost := rand.Float64()
	start := time.Now()
	for {
		l.mu.Lock()
		weather, changed := l.weather, l.changed
		l.mu.Unlock()
		due := p.sent.Add(weather.Latency)
		if weather.Bandwidth > 0 {
			due = later(due, start.Add(time.Duration(len(p.bytes))*time.Second/time.Duration(weather.Bandwidth)))
		}
		if lost < weather.Loss && noLoss() != nil {
			due = later(due, start.Add(resend))
		}
		var arrives <-chan time.Time
		if !weather.Held {
			wait := time.Until(due)
			if wait <= 0 && !w.silent() {
				return true
			}
			timer := time.NewTimer(wait)
			defer timer.Stop()
			arrives = timer.C
		}
		select {
		case <-arrives:
			return !w.silent()
		case <-changed:
		case <-w.deaf:
			return false
		case <-w.over:
			return false
		}
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// wire is one connection over a link.
type wire struct {
	client, server net.Conn
	over, deaf     chan struct{}
	once, mute     sync.Once
}

// lose makes both ends lose a part of what they send. A connection that has ended meanwhile loses
// all.
func (w *wire) lose(part float64) {
	for _, conn := range []net.Conn{w.client, w.server} {
		_ = lose(conn.(*net.TCPConn), part)
	}
}

func (w *wire) silence() { w.mute.Do(func() { close(w.deaf) }) }

func (w *wire) silent() bool {
	select {
	case <-w.deaf:
		return true
	default:
		return false
	}
}

// reset ends the connection with a RST to both ends.
func (w *wire) reset() {
	for _, conn := range []net.Conn{w.client, w.server} {
		if tcp, ok := conn.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0)
		}
	}
	w.close()
}

func (w *wire) close() {
	w.once.Do(func() {
		close(w.over)
		for _, conn := range []net.Conn{w.client, w.server} {
			if conn != nil {
				_ = conn.Close()
			}
		}
	})
}
