package passthrough

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/url"
	"sync"
	"time"

	"spillway/internal/apistatus"
	"spillway/internal/plan"
)

const (
	// sharedBytesLimit is the largest answer, in bytes, that is kept to be written more than once.
	sharedBytesLimit = 8 << 20
	// sharedAnswersLimit is how many such answers are being fetched at once.
	sharedAnswersLimit = 16
	// laneKeyLimit is how long the key of a lane may be, in bytes: keys are kept, and clients make
	// them up.
	laneKeyLimit = 4 << 10
	// gatherTimeout is how long a LIST waits for the one before it to be under way. After that
	// upstream is taken to be stuck, which is no reason to wait any longer.
	gatherTimeout = 2 * time.Second
	// sharedTimeout bounds a request that is shared, as upstream bounds it itself.
	sharedTimeout = 75 * time.Second
	// largeAnswerPeriod is how long it is remembered that an answer was too large.
	largeAnswerPeriod = time.Minute
)

// Coalescer lets LISTs of the most recent state that pass through at the same time share one
// request upstream (design D7): when a thousand clients reconnect at once, upstream makes the list
// twice instead of a thousand times.
//
// The first passes through as it is. Equal ones that arrive while upstream is at work on it gather.
// When the head of that answer is there, those that have gathered share one request, and later ones
// gather anew. So no LIST shares a request that was sent before the LIST arrived: the answer might
// lack what its client has learned meanwhile. A single one that has gathered passes through alone,
// and so do all if the answer cannot be shared. A shared request travels under the proxy's own
// credentials: only users that may read whatever is mirrored share one, and nothing of it is as a
// client sent it but the two Accept headers. Path and query are made of what was parsed and
// authorised.
type Coalescer struct {
	transport http.RoundTripper // with the proxy's own credentials; nil: nothing is shared
	base      *url.URL
	ctx       context.Context

	mu struct {
		sync.Mutex
		lanes   map[LaneKey]*lane
		large   map[LaneKey]time.Time // answers that were too large, and when
		sharing int
	}
	active sync.WaitGroup // requests that are shared
}

// LaneKey is everything that decides what upstream answers.
type LaneKey struct {
	path, query, accept, acceptEncoding string
	pretty                              bool // by parameter or by User-Agent (W-9)
}

// lane is one kind of LIST that is under way.
type lane struct {
	sent int // whose answers have not begun, or, of those that are shared, not come
	next *pendingList
}

// pendingList is the LISTs that wait for the next request of a lane. Its result is set before done
// is closed.
type pendingList struct {
	agent       string // of the first: all of them get the same answer
	size        int
	gatherTimer *time.Timer
	done        chan struct{}

	answer   *SharedAnswer // nil: each passes through by itself
	unshared bool          // and there is one only: the lane waits for it
}

// SharedAnswer is an answer that can be written more than once.
type SharedAnswer struct {
	Code   int
	Header http.Header
	Body   []byte
}

// NewCoalescer shares requests to base over own until ctx ends; a nil own shares nothing.
func NewCoalescer(ctx context.Context, own http.RoundTripper, base *url.URL) *Coalescer {
	c := &Coalescer{transport: own, base: base, ctx: ctx}
	c.mu.lanes, c.mu.large = map[LaneKey]*lane{}, map[LaneKey]time.Time{}
	return c
}

// LaneKeyOf is the lane of a request that was planned as a LIST.
func LaneKeyOf(r plan.Request, acceptEncoding string) LaneKey {
	t, _ := plan.ParseTarget(r.Path) // as it was when it was planned
	query := r.Query()
	return LaneKey{
		path: t.Path(), query: query.Encode(), accept: r.Accept, acceptEncoding: acceptEncoding,
		pretty: plan.WantsPretty(query.Get("pretty"), r.UserAgent),
	}
}

func (k LaneKey) size() int {
	return len(k.path) + len(k.query) + len(k.accept) + len(k.acceptEncoding)
}

// Share is the answer to a LIST of the most recent state that it shares with others; it may have to
// be waited for. Without one, the LIST passes through by itself, and calls landed when its answer
// has begun or will not come. Calls after the first do nothing.
func (c *Coalescer) Share(key LaneKey, agent string) (shared *SharedAnswer, landed func()) {
	g, first := c.joinList(key, agent)
	if g != nil {
		<-g.done
		if g.answer != nil {
			return g.answer, nil
		}
		first = g.unshared
	}
	if !first {
		return nil, func() {}
	}
	return nil, sync.OnceFunc(func() { c.endRequest(key) })
}

// joinList is the pendingList to wait with. None: pass through, as the first if nothing of the lane
// is under way.
func (c *Coalescer) joinList(key LaneKey, agent string) (g *pendingList, first bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	l := c.mu.lanes[key]
	switch {
	case c.transport == nil || key.size() > laneKeyLimit || time.Since(c.mu.large[key]) < largeAnswerPeriod:
		return nil, false
	case l == nil:
		c.mu.lanes[key] = &lane{sent: 1}
		return nil, true
	case l.next == nil:
		g := &pendingList{agent: agent, done: make(chan struct{})}
		g.gatherTimer = time.AfterFunc(gatherTimeout, func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			if l.next == g {
				c.startLocked(key, l)
			}
		})
		l.next = g
	}
	l.next.size++
	return l.next, false
}

// endRequest counts out a request of the lane, and starts the LISTs that have gathered.
func (c *Coalescer) endRequest(key LaneKey) {
	c.mu.Lock()
	defer c.mu.Unlock()
	l := c.mu.lanes[key]
	l.sent--
	switch {
	case l.sent > 0:
	case l.next != nil:
		c.startLocked(key, l)
	default:
		delete(c.mu.lanes, key)
	}
}

// startLocked starts the LISTs that have gathered.
func (c *Coalescer) startLocked(key LaneKey, l *lane) {
	g := l.next
	g.gatherTimer.Stop()
	l.next = nil
	l.sent++
	if g.unshared = g.size == 1; g.unshared {
		close(g.done)
		return
	}
	room := c.mu.sharing < sharedAnswersLimit
	if room {
		c.mu.sharing++
	}
	c.active.Go(func() {
		defer c.endRequest(key)
		defer close(g.done)
		if room {
			g.answer = c.fetch(key, g.agent)
		}
	})
}

// fetch asks upstream; nil if what comes cannot be shared.
func (c *Coalescer) fetch(key LaneKey, agent string) *SharedAnswer {
	answer, tooLarge := c.request(key, agent)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.sharing--
	if tooLarge {
		if len(c.mu.large) >= 16*sharedAnswersLimit { // queries that clients made up
			clear(c.mu.large)
		}
		c.mu.large[key] = time.Now()
	}
	return answer
}

func (c *Coalescer) request(key LaneKey, agent string) (answer *SharedAnswer, tooLarge bool) {
	ctx, cancel := context.WithTimeout(c.ctx, sharedTimeout)
	defer cancel()
	target := key.path
	if key.query != "" {
		target += "?" + key.query
	}
	to, err := targetURL(c.base, target)
	if err != nil {
		return nil, false
	}
	r := &http.Request{
		Method: http.MethodGet, URL: to, Host: to.Host, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"User-Agent": {agent}},
	}
	for name, value := range map[string]string{"Accept": key.accept, "Accept-Encoding": key.acceptEncoding} {
		if value != "" {
			r.Header.Set(name, value)
		}
	}
	resp, err := c.transport.RoundTrip(r.WithContext(ctx))
	if err != nil {
		return nil, false
	}
	defer resp.Body.Close()
	if !isSharable(resp) {
		return nil, false
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, sharedBytesLimit+1))
	if err != nil || len(body) > sharedBytesLimit {
		return nil, err == nil
	}
	responseHeader(resp.Header)
	return &SharedAnswer{Code: resp.StatusCode, Header: resp.Header, Body: body}, false
}

// isSharable reports an answer that every client would have received: the list, or that upstream
// cannot make it now. Any other refusal may concern the proxy's credentials alone.
func isSharable(resp *http.Response) bool {
	for _, values := range resp.Header {
		if len(values) > 1 {
			return false // a responder writes one value of each
		}
	}
	return resp.StatusCode == http.StatusOK || resp.StatusCode == http.StatusTooManyRequests ||
		resp.StatusCode >= http.StatusInternalServerError
}

// NewAnswer is the answer to one of the requests that share a.
func (a *SharedAnswer) NewAnswer() *apistatus.Answer {
	answer := &apistatus.Answer{Code: a.Code, Stream: bytes.NewReader(a.Body), Size: int64(len(a.Body))}
	for name := range a.Header {
		switch name {
		case apistatus.AuditIDHeader, "Date", "Content-Length", "Set-Cookie": // a cookie would be the proxy's own
		default:
			answer.SetField(name, a.Header.Get(name))
		}
	}
	return answer
}

// Wait returns when no request is shared any more. Cancel the coalescer's context before.
func (c *Coalescer) Wait() { c.active.Wait() }
