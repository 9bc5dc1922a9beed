package watch

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	"spillway/internal/cache"
	"spillway/internal/clientconn"
	"spillway/internal/flowcontrol"
	"spillway/internal/object"
	"spillway/internal/plan"
	"spillway/internal/source"
	"spillway/internal/source/sourcetest"
)

// world is a server without a network: pods, their hub, an oracle, and streams over pipes. It is
// for bubbles, in which time passes only when all goroutines wait.
type world struct {
	t       *testing.T
	manager *Manager
	stop    context.CancelCauseFunc
	source  *source.Source
	oracle  *sourcetest.Oracle
	pace    func(n int) // of new clients; nil: they read at once
}

const worldStall = 30 * time.Second

// deliveries are the deliverers. All are held to the same tests.
var deliveries = map[string]func(*Manager) deliverer{
	"goroutines": func(*Manager) deliverer { return goroutines{} },
	"writers": func(m *Manager) deliverer {
		d := &writers{}
		for range 2 {
			w := newWriter(m)
			w.openSender = func(c *ConnSink) nonblockingSender { return clientconn.PacedConnOf(c.Conn).NetConn().(*narrow) }
			d.shards = append(d.shards, w)
		}
		d.start(m)
		return d
	},
}

// delivery is one of deliveries.
type delivery func(*Manager) deliverer

// bubbles runs f in a bubble for each deliverer.
func bubbles(t *testing.T, f func(t *testing.T, d delivery)) {
	t.Helper()
	for name, d := range deliveries {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { f(t, d) })
		})
	}
}

// newWorld holds pods that are complete through 100.
func newWorld(t *testing.T, d delivery, pods ...string) *world {
	w := &world{t: t, oracle: sourcetest.NewOracle(100)}
	w.source = sourcetest.New(t, sourcetest.Pods, w.oracle, 100, pods...)
	base, stop := context.WithCancelCause(context.Background())
	w.stop = stop
	w.manager = NewManager(Options{
		Base: base, StallTimeout: worldStall, CPU: clientconn.NewCPULimiter(1), Eviction: &clientconn.EvictionPolicy{},
		Panicked: func(any) {},
		Withdraw: func(of *source.Source, e object.Encoding, _ error) { of.Codec.Withdraw(e.Format, e.View) },
		Metrics:  NewStreamMetrics(nil), Log: zap.NewNop(),
	})
	w.manager.deliverer = d(w.manager)
	ctx, cancel := context.WithCancel(context.Background())
	hub := make(chan struct{})
	go func() {
		defer close(hub)
		_ = w.source.Hub.Run(ctx)
	}()
	t.Cleanup(func() {
		w.stop(EndAborted.AsError())
		if d, ok := w.manager.deliverer.(*writers); ok {
			d.wait()
		}
		w.holdsNoPermit()
		cancel()
		<-hub
		time.Sleep(time.Minute) // proofs outlive the requests that started them
	})
	return w
}

// holdsNoPermit checks that no CPU permit is held.
func (w *world) holdsNoPermit() {
	w.t.Helper()
	synctest.Wait()
	if n := w.manager.opts.CPU.InUse(); n != 0 {
		w.t.Errorf("%d CPU permits are held", n)
	}
}

func (w *world) resource() *cache.Resource { return w.source.Resource() }

// set applies a new version of a pod.
func (w *world) set(pod string) { w.apply(w.resource().Update, pod) }

// remove applies the deletion of a pod, at the version that is given.
func (w *world) remove(pod string) { w.apply(w.resource().Delete, pod) }

func (w *world) apply(f func(*object.Object) error, pod string) {
	w.t.Helper()
	if err := f(sourcetest.ParseOne(w.t, sourcetest.Pods, pod)); err != nil {
		w.t.Fatal(err)
	}
}

// relist applies a complete state.
func (w *world) relist(rv uint64, pods ...string) {
	w.t.Helper()
	if err := w.resource().Replace(sourcetest.Parse(w.t, sourcetest.Pods, pods...), rv); err != nil {
		w.t.Fatal(err)
	}
}

// testClient is a client. It reads everything, unless it is paused.
type testClient struct {
	t         *testing.T
	stream    *Stream // nil until it is open
	world     *world
	isOpening bool
	refusal   *Refusal // once it is not opening any more; nil: it is open
	conn      net.Conn
	left      chan struct{}  // closed when the client has left
	reason    chan EndReason // how the server says that it ended

	mu     sync.Mutex
	paused chan struct{} // nil: reading
	pace   func(n int)   // called for each read
	text   []byte
	closed error
	told   int // events that were compared
}

// watch starts a stream of the pods on path.
func (w *world) watch(query string) *testClient {
	w.t.Helper()
	return w.watchAs(query, StreamOptions{}, func(*Stream) {})
}

// plan is that of a watch.
func (w *world) plan(query string) plan.Plan {
	w.t.Helper()
	planner := plan.Planner{Catalog: sourcetest.Resources{sourcetest.Pods.GVR: w.source},
		WatchTimeout: func() time.Duration { return time.Hour }}
	path, query, _ := strings.Cut(query, "?")
	candidate, _ := planner.Consider(plan.Request{Method: "GET", Path: path, RawQuery: query, Plain: true,
		Chunked: true})
	plan := planner.Decide(candidate)
	if plan.Watch == nil {
		w.t.Fatalf("%s?%s is not a watch: action %v", path, query, plan.Action)
	}
	return plan
}

// onlyAuditID has nothing to say of a resource.
func onlyAuditID(set func(key, value string)) { set("Audit-Id", "audit") }

// watchAs is watch, of a stream that is prepared once it has its sink.
func (w *world) watchAs(query string, o StreamOptions, prepare func(*Stream)) *testClient {
	w.t.Helper()
	near, far := narrowPipe()
	p := &testClient{t: w.t, world: w, isOpening: true, pace: w.pace, conn: far, left: make(chan struct{}),
		reason: make(chan EndReason, 1)}
	plan := w.plan(query)
	go func() {
		st, refusal := w.manager.Open(p.departs, plan, o, noFlow)
		p.mu.Lock()
		p.stream, p.refusal, p.isOpening = st, refusal, false
		p.mu.Unlock()
		if refusal != nil {
			_ = near.Close()
			return
		}
		st.attach(&ConnSink{Conn: clientconn.New(near, w.manager.opts.CPU, w.manager.opts.Eviction),
			StallTimeout: worldStall, Head: Head(st, onlyAuditID, ""), Ended: func(reason EndReason, _ bool) {
				_ = near.Close()
				p.reason <- reason
			}})
		prepare(st)
		st.deliver()
	}()
	go p.read()
	w.t.Cleanup(func() { p.close() })
	synctest.Wait()
	return p
}

// departs tells of the client's departure.
func (p *testClient) departs(gone func()) (stop func()) {
	stopped := make(chan struct{})
	go func() {
		select {
		case <-p.left:
			gone()
		case <-stopped:
		}
	}()
	return sync.OnceFunc(func() { close(stopped) })
}

func (p *testClient) close() {
	p.leave()
	_ = p.conn.Close()
	p.resume()
}

// opened is why the request was refused, nil if it was not; false: neither yet.
func (p *testClient) opened() (*Refusal, bool) {
	p.t.Helper()
	synctest.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.refusal, !p.isOpening
}

// leave tells the server, as the poller of connections does, that the client has left.
func (p *testClient) leave() {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.left:
	default:
		close(p.left)
	}
}

func (p *testClient) read() {
	buf := make([]byte, 4<<10)
	for {
		p.mu.Lock()
		paused, pace := p.paused, p.pace
		p.mu.Unlock()
		if paused != nil {
			<-paused
			continue
		}
		n, err := p.conn.Read(buf)
		p.mu.Lock()
		p.text = append(p.text, buf[:n]...)
		p.closed = err
		p.mu.Unlock()
		if err != nil {
			return
		}
		if pace != nil {
			pace(n)
		}
	}
}

// pause stops reading after the read that is under way.
func (p *testClient) pause() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.paused == nil {
		p.paused = make(chan struct{})
	}
}

// resume reads on.
func (p *testClient) resume() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.paused != nil {
		close(p.paused)
		p.paused = nil
	}
}

// slowly makes the client sleep for each read.
func (p *testClient) slowly(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pace = func(int) { time.Sleep(d) }
}

// response is everything so far as it came: nil without a head.
func (p *testClient) response() *http.Response {
	p.t.Helper()
	synctest.Wait()
	p.mu.Lock()
	text := string(p.text)
	p.mu.Unlock()
	if text == "" {
		return nil
	}
	response, err := http.ReadResponse(bufio.NewReader(strings.NewReader(text)), nil)
	if err != nil {
		p.t.Fatalf("head: %v: %q", err, text)
	}
	return response
}

// received is everything so far: the head, the events in short, and whether the body was
// terminated.
func (p *testClient) received() (head *http.Response, events []string, terminated bool) {
	p.t.Helper()
	response := p.response()
	if response == nil {
		return nil, nil, false
	}
	lines := bufio.NewReader(response.Body)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 && err == nil {
			events = append(events, short(p.t, line))
		}
		if err != nil {
			return response, events, errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF)
		}
	}
}

// short is an event in a few words.
func short(t *testing.T, line []byte) string {
	t.Helper()
	var e struct {
		Type   string
		Object struct {
			Message  string
			Code     int
			Metadata struct {
				Namespace, Name, ResourceVersion string
				Annotations                      map[string]string
			}
		}
	}
	if err := json.Unmarshal(line, &e); err != nil {
		t.Fatalf("event %q: %v", line, err)
	}
	o := e.Object
	switch {
	case e.Type == "ERROR":
		return fmt.Sprintf("ERROR %d %s", o.Code, o.Message)
	case e.Type == "BOOKMARK" && o.Metadata.Annotations["k8s.io/initial-events-end"] == "true":
		return "BOOKMARK " + o.Metadata.ResourceVersion + " end"
	case e.Type == "BOOKMARK":
		return "BOOKMARK " + o.Metadata.ResourceVersion
	}
	return e.Type + " " + o.Metadata.Namespace + "/" + o.Metadata.Name + " " + o.Metadata.ResourceVersion
}

// gets compares what came since the last time with what should have.
func (p *testClient) gets(want ...string) {
	p.t.Helper()
	head, events, _ := p.received()
	if head == nil {
		p.t.Fatal("not even a head")
	}
	if got := events[p.told:]; !slices.Equal(got, want) {
		p.t.Fatalf("got  %q\nwant %q", got, want)
	}
	p.told = len(events)
}

// ends checks that the stream has ended, for the reason, with its terminator if that is a clean
// one, after the events.
func (p *testClient) ends(want EndReason, last ...string) {
	p.t.Helper()
	p.gets(last...)
	_, _, terminated := p.received()
	select {
	case got := <-p.reason:
		if got != want {
			p.t.Fatalf("ended: %s, want %s", got, want)
		}
	default:
		p.t.Fatalf("has not ended, want %s", want)
	}
	if terminated != want.Clean() {
		p.t.Errorf("terminated: %v, for %s", terminated, want)
	}
}

// goesOn checks that the stream has not ended.
func (p *testClient) goesOn() {
	p.t.Helper()
	synctest.Wait()
	select {
	case got := <-p.reason:
		p.t.Fatalf("ended: %s", got)
	default:
	}
}

// noFlow is that of requests that no limit counts.
var noFlow flowcontrol.Flow
