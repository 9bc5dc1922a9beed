package watch

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"spillway/internal/clientconn"
	"spillway/internal/fanout"
	"spillway/internal/object"
	"spillway/internal/plan"
	"spillway/internal/source"
	"spillway/internal/source/sourcetest"
)

// socketClients are many clients of one feed, on real sockets, that do nothing but take what comes.
type socketClients struct {
	tb      testing.TB
	manager *Manager
	poller  *clientconn.Poller
	stop    context.CancelCauseFunc
	source  *source.Source
	config  *tls.Config // nil: plain
	streams []*Stream
	version uint64
	padding string
	frame   int // bytes of an event
	head    int // of an answer
	sealed  int // bytes that TLS adds to what is sent at once

	epoll int
	taken atomic.Int64 // bytes, of all
	spent atomic.Int64 // processor time of the clients, in nanoseconds
	done  chan struct{}
}

// newAudience starts n clients whose events have about size bytes.
func newAudience(tb testing.TB, n, size int, secure bool, d func(*Manager) deliverer) *socketClients {
	const version = 1_000_000 // so that all have as many digits
	c := &socketClients{
		tb: tb, source: sourcetest.New(tb, sourcetest.Pods, sourcetest.NewOracle(version), version, "a/x 1000000"),
		version: version, padding: strings.Repeat("x", size), done: make(chan struct{}),
	}
	frame, err := fanout.AppendEvent(nil, object.Encoding{Chunked: true}, object.Modified, c.pod(), version)
	if err != nil {
		tb.Fatal(err)
	}
	c.frame = len(frame)
	base, stop := context.WithCancelCause(context.Background())
	c.poller, c.stop = clientconn.NewPoller(zap.NewNop()), stop
	c.manager = NewManager(Options{
		Base: base, StallTimeout: time.Minute, Metrics: NewStreamMetrics(nil), Log: zap.NewNop(),
		Panicked: func(any) {},
	})
	c.manager.deliverer = d(c.manager)
	if secure {
		c.config = serverTLS()
		c.config.DynamicRecordSizingDisabled, c.config.SessionTicketsDisabled, c.config.MinVersion = true, true,
			tls.VersionTLS13
		c.sealed = 5 + 1 + 16 // header, type, tag (RFC 8446)
	}
	if c.epoll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		tb.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	defer ln.Close()
	var ended sync.WaitGroup
	for range n {
		c.join(ln, &ended)
	}
	go c.take()
	tb.Cleanup(func() {
		c.stop(EndAborted.AsError())
		ended.Wait()
		c.poller.Close()
		_ = unix.Close(c.epoll)
		<-c.done
	})
	return c
}

// join makes one more client, whose watch is past its initial events.
func (c *socketClients) join(ln net.Listener, ended *sync.WaitGroup) {
	c.tb.Helper()
	client, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		c.tb.Fatal(err)
	}
	accepted, err := clientconn.Listener{Listener: ln}.Accept()
	if err != nil {
		c.tb.Fatal(err)
	}
	if c.config != nil {
		accepted = c.handshake(accepted, client)
	}
	planner := plan.Planner{Catalog: sourcetest.Resources{sourcetest.Pods.GVR: c.source},
		WatchTimeout: func() time.Duration { return time.Hour }}
	candidate, _ := planner.Consider(plan.Request{
		Method: "GET", Path: "/api/v1/pods", RawQuery: "watch=1&resourceVersion=1000000", Plain: true, Chunked: true,
	})
	here := &testClient{left: make(chan struct{})}
	st, refusal := c.manager.Open(here.departs, planner.Decide(candidate), StreamOptions{}, noFlow)
	if refusal != nil {
		c.tb.Fatalf("refused: %+v", refusal)
	}
	out := &ConnSink{Conn: accepted, StallTimeout: time.Minute, Head: Head(st, onlyAuditID, "")}
	c.head = len(out.Head)
	out.Watched = c.poller.Watch(accepted, func() { st.Stop(EndClientClosed) })
	out.Ended = func(EndReason, bool) {
		out.Watched.Stop()
		clientconn.ResetConn(out.Conn)
		ended.Done()
	}
	ended.Add(1)
	c.streams = append(c.streams, st)
	go st.Serve(out, func(take, _ func()) { take() })
	c.drained(client)
}

func (c *socketClients) handshake(accepted, client net.Conn) net.Conn {
	c.tb.Helper()
	server := tls.Server(accepted, c.config)
	shaken := make(chan error, 1)
	go func() { shaken <- server.Handshake() }()
	if err := tls.Client(client,
		&tls.Config{InsecureSkipVerify: true}).Handshake(); err != nil { //nolint:gosec // a throw-away certificate
		c.tb.Fatal(err)
	}
	if err := <-shaken; err != nil {
		c.tb.Fatal(err)
	}
	return server
}

// drained leaves a client's socket to take, behind Go's back.
func (c *socketClients) drained(client net.Conn) {
	c.tb.Helper()
	raw, err := client.(*net.TCPConn).SyscallConn()
	if err != nil {
		c.tb.Fatal(err)
	}
	fd := -1
	if failed := raw.Control(func(own uintptr) { fd, err = unix.Dup(int(own)) }); failed != nil || err != nil {
		c.tb.Fatal(failed, err)
	}
	c.tb.Cleanup(func() { _ = unix.Close(fd) })
	_ = client.Close() // the socket lives on
	if err := unix.EpollCtl(c.epoll, unix.EPOLL_CTL_ADD, fd,
		&unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(fd)}); err != nil {
		c.tb.Fatal(err)
	}
}

// take reads for all clients, on a thread of its own, and throws it away.
func (c *socketClients) take() {
	defer close(c.done)
	runtime.LockOSThread()
	events := make([]unix.EpollEvent, 512)
	for {
		n, err := unix.EpollWait(c.epoll, events, 100)
		if err != nil && err != unix.EINTR { //nolint:errorlint // an errno
			return
		}
		for _, e := range events[:max(n, 0)] {
			got, _, errno := syscall.Syscall6(unix.SYS_RECVFROM, uintptr(e.Fd), 0, 1<<20, unix.MSG_TRUNC|unix.MSG_DONTWAIT, 0, 0)
			if errno != 0 && errno != unix.EAGAIN || got == 0 {
				_ = unix.EpollCtl(c.epoll, unix.EPOLL_CTL_DEL, int(e.Fd), nil)
				continue
			}
			if errno == 0 {
				c.taken.Add(int64(got))
			}
		}
		c.spent.Store(cpuTime(unix.CLOCK_THREAD_CPUTIME_ID))
	}
}

func cpuTime(clock int32) int64 {
	var t unix.Timespec
	_ = unix.ClockGettime(clock, &t)
	return t.Nano()
}

// pod is the object's next version.
func (c *socketClients) pod() *object.Object {
	return sourcetest.ParseOne(c.tb, sourcetest.Pods, fmt.Sprintf("a/x %d pad=%s", c.version, c.padding))
}

// write puts k events into the log and into the feeds.
func (c *socketClients) write(k int) {
	for range k {
		c.version++
		if err := c.source.Resource().Update(c.pod()); err != nil {
			c.tb.Fatal(err)
		}
	}
	c.source.Hub.Dispatch()
}

// settled waits until the clients have taken so many bytes.
func (c *socketClients) settled(least int64) {
	for until := time.Now().Add(patience); c.taken.Load() < least; time.Sleep(100 * time.Microsecond) {
		if time.Now().After(until) {
			c.tb.Fatalf("only %d of %d bytes arrived", c.taken.Load(), least)
		}
	}
}

// ready waits until every client has the head of its answer and follows the feed, and returns what
// they have taken.
func (c *socketClients) ready() int64 {
	head := int64(len(c.streams) * (c.head + c.sealed))
	c.settled(head)
	for range 2 { // the first event comes from the log, at least to some
		c.write(1)
		head += c.round(1)
		c.settled(head)
	}
	return head
}

// round is how many bytes k events are, sent to all clients at once.
func (c *socketClients) round(k int) int64 { return int64(len(c.streams) * (k*c.frame + c.sealed)) }

func byWriters(m *Manager) deliverer { return newWriters(m) }

func byGoroutines(*Manager) deliverer { return goroutines{} }

// An event costs no allocation per client, however it is sent. The runtime and what earlier tests
// have left behind allocate, too, at times: what a delivery does is in every try.
func TestDeliveryBySlotsAllocatesNothing(t *testing.T) {
	for _, secure := range []bool{false, true} {
		t.Run(fmt.Sprintf("TLS=%v", secure), func(t *testing.T) {
			allowed := 0.01
			if secure && raceDetector {
				allowed = 1 // a sync.Pool, which crypto/tls has its buffers from, then forgets things on purpose
			}
			extra := allocationsPerDelivery(t, secure)
			for try := 1; try < 5 && extra > allowed; try++ {
				t.Logf("%v allocations per delivery", extra)
				extra = min(extra, allocationsPerDelivery(t, secure))
			}
			if extra > allowed {
				t.Errorf("%v allocations per delivery", extra)
			}
		})
	}
}

// allocationsPerDelivery is what is allocated for each of many clients, beyond what the writing of
// an event and its dispatch allocate once for all of them.
func allocationsPerDelivery(t *testing.T, secure bool) float64 {
	t.Helper()
	const clients, rounds = 200, 50
	c := newAudience(t, clients, 2000, secure, byWriters)
	taken := c.ready()
	per := testing.AllocsPerRun(rounds, func() {
		c.write(1)
		taken += c.round(1)
		c.settled(taken)
	})
	once := testing.AllocsPerRun(rounds, func() {
		c.write(1)
	})
	return (per - once) / clients
}

// TestIdleWatchesAreSmall shows that an idle watch has no goroutine and takes little memory. Over
// TLS, 4 kB are the buffers of crypto/tls that a handshake and a request need.
func TestIdleWatchesAreSmall(t *testing.T) {
	for secure, most := range map[bool]float64{false: 3 << 10, true: 10 << 10} {
		t.Run(fmt.Sprintf("TLS=%v", secure), func(t *testing.T) {
			const more = 400
			small, large := measured(t, 20, secure), measured(t, 20+more, secure)
			per := (large.bytes - small.bytes) / more
			t.Logf("%.0f bytes per watch", per)
			if large.goroutines-small.goroutines > more/10 { // a few may be those of earlier tests, about to end
				t.Errorf("%d goroutines for %d watches, %d for 20", large.goroutines, 20+more, small.goroutines)
			}
			if per > most && !raceDetector {
				t.Errorf("%.0f bytes per watch, want at most %.0f", per, most)
			}
		})
	}
}

type memoryUse struct {
	bytes      float64 // of heap and stacks
	goroutines int
}

// measured is what n idle watches take, their clients' sockets included.
func measured(t *testing.T, n int, secure bool) (f memoryUse) {
	t.Helper()
	t.Run(fmt.Sprint(n), func(t *testing.T) {
		// A server that was stopped before this is held by fasthttp's cleaner of idle workers, for
		// up to ten seconds.
		eventually(t, "what earlier tests left to be let go of", func() bool {
			stacks := make([]byte, 4<<20)
			return !bytes.Contains(stacks[:runtime.Stack(stacks, true)], []byte("fasthttp.(*workerPool).Start"))
		})
		runtime.GC()
		runtime.GC() // pools are emptied by the second
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		c := newAudience(t, n, 2000, secure, byWriters)
		c.ready()
		runtime.GC()
		runtime.GC()
		runtime.ReadMemStats(&after)
		f.bytes = float64(after.HeapAlloc+after.StackInuse) - float64(before.HeapAlloc+before.StackInuse)
		f.goroutines = runtime.NumGoroutine()
	})
	return f
}

// BenchmarkDelivery is the processor time that one client costs per event, kernel included: by
// writers, by goroutines, and by the least that can be done, a loop of sends.
func BenchmarkDelivery(b *testing.B) {
	for _, secure := range []bool{false, true} {
		for _, k := range []int{1, 16} {
			for _, by := range []struct {
				name string
				d    func(*Manager) deliverer
			}{{"bare", nil}, {"writers", byWriters}, {"goroutines", byGoroutines}} {
				if by.d == nil && secure {
					continue
				}
				b.Run(fmt.Sprintf("TLS=%v/k=%d/%s", secure, k, by.name), func(b *testing.B) {
					benchmarkDelivery(b, k, secure, by.d)
				})
			}
		}
	}
}

func benchmarkDelivery(b *testing.B, k int, secure bool, d func(*Manager) deliverer) {
	const clients = 1000
	bare := d == nil
	if bare {
		d = func(*Manager) deliverer { return idleDeliverer{} }
	}
	c := newAudience(b, clients, 2000, secure, d)
	frame := make([]byte, k*c.frame)
	if !bare {
		c.ready()
	}
	var fds []int
	for _, st := range c.streams {
		_ = st.out.(*ConnSink).Watched.Socket().Control(func(fd uintptr) { fds = append(fds, int(fd)) })
	}
	began := cpuTime(unix.CLOCK_PROCESS_CPUTIME_ID) - c.spent.Load()
	rounds := 0
	for b.Loop() {
		before := c.taken.Load()
		if bare {
			for _, fd := range fds {
				_, _, _ = syscall.RawSyscall6(unix.SYS_SENDTO, uintptr(fd), uintptr(unsafe.Pointer(&frame[0])), uintptr(len(frame)),
					unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL, 0, 0)
			}
		} else {
			c.write(k)
		}
		rounds++
		c.settled(before + int64(len(frame)*clients))
	}
	spent := cpuTime(unix.CLOCK_PROCESS_CPUTIME_ID) - c.spent.Load() - began
	b.ReportMetric(float64(spent)/1000/float64(rounds*k*clients), "cpu-us/delivery")
}

// BenchmarkWatches is what it takes to find out how far a thousand watches are.
func BenchmarkWatches(b *testing.B) {
	for _, by := range []struct {
		name string
		d    func(*Manager) deliverer
	}{{"writers", byWriters}, {"goroutines", byGoroutines}} {
		b.Run(by.name, func(b *testing.B) {
			const clients = 1000
			c := newAudience(b, clients, 2000, false, by.d)
			c.ready()
			c.write(1)
			for b.Loop() {
				for _, st := range c.streams {
					if _, open := st.counters(); !open {
						b.Fatal("a stream has ended")
					}
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/clients, "ns/watch")
		})
	}
}

// idleDeliverer is a deliverer that leaves its streams alone.
type idleDeliverer struct{}

func (idleDeliverer) deliver(s *Stream) {
	<-s.Done()
	s.Cleanup(EndAborted)
}
