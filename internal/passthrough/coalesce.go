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
	// laneKeyBytesLimit is how long the key of a lane may be: keys are kept, and clients make them up.
	laneKeyBytesLimit = 4 << 10
	// gatherTimeout is how long LISTs gather. A request whose head has not come by then is stuck,
	// which is no reason to wait any longer.
	gatherTimeout = 2 * time.Second
	// sharedTimeout bounds a request that is shared, as upstream bounds it itself.
	sharedTimeout = 75 * time.Second
	// largeAnswerPeriod is how long it is remembered that an answer was too large, and
	// largeAnswersLimit of how many lanes.
	largeAnswerPeriod = time.Minute
	largeAnswersLimit = 256
)

// Coalescer lets LISTs of the most recent state that pass through at the same time share one
// request upstream (design D7): when a thousand clients reconnect at once, upstream makes the list
// twice instead of a thousand times.
//
// The first LIST of a lane passes through as it is. Equal ones that arrive while upstream is at
// work on it gather. When the head of that answer is there, those that have gathered share one
// request, and later ones gather again. So no LIST shares a request that was sent before the LIST
// arrived: the answer might lack what its client has learned meanwhile. A single LIST that has
// gathered passes through alone, and so do all if the answer cannot be shared.
//
// A shared request travels under the proxy's own credentials, so only users that may read whatever
// is mirrored share one. Of what a client sent it has the two Accept headers and the User-Agent.
// Path and query are made of what was parsed and authorised.
type Coalescer struct {
	transport http.RoundTripper // with the proxy's own credentials; nil: nothing is shared
	base      *url.URL
	ctx       context.Context

	mu struct {
		sync.Mutex
		lanes   map[LaneKey]*lane
		large   map[LaneKey]time.Time // answers that were too large, and when
		sharing int                   // answers that are being fetched
	}
	active sync.WaitGroup // requests that are shared
}

// LaneKey is everything that decides what upstream answers to a LIST.
type LaneKey struct {
	path, query, accept, acceptEncoding string
	pretty                              bool // by parameter or by User-Agent (W-9)
}

// lane is one kind of LIST that is under way.
type lane struct {
	// underway counts requests upstream: one that passes through until its answer begins, a shared one
	// until its answer is here.
	underway int
	next     *gathering // waits for the requests under way; nil: none has arrived since
}

// gathering is LISTs of one lane that wait together. Its outcome is set before done is closed. It
// is one of three: all share the answer; or the only LIST passes through, isCounted among the
// lane's requests under way; or, with neither set, each passes through uncounted.
type gathering struct {
	agent string // of the first: all of them get the same answer
	size  int
	timer *time.Timer
	done  chan struct{}

	answer    *SharedAnswer
	isCounted bool
}

// newLoneGathering is the gathering of a LIST that does not wait.
func newLoneGathering(isCounted bool) *gathering {
	g := &gathering{done: make(chan struct{}), isCounted: isCounted}
	close(g.done)
	return g
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
	g := c.joinLane(key, agent)
	<-g.done
	switch {
	case g.answer != nil:
		return g.answer, nil
	case g.isCounted:
		return nil, sync.OnceFunc(func() { c.endRequest(key) })
	}
	return nil, func() {}
}

// joinLane is the gathering that a LIST becomes one of.
func (c *Coalescer) joinLane(key LaneKey, agent string) *gathering {
	c.mu.Lock()
	defer c.mu.Unlock()
	l := c.mu.lanes[key]
	switch {
	case c.transport == nil || key.size() > laneKeyBytesLimit || time.Since(c.mu.large[key]) < largeAnswerPeriod:
		return newLoneGathering(false)
	case l == nil:
		c.mu.lanes[key] = &lane{underway: 1}
		return newLoneGathering(true)
	case l.next == nil:
		g := &gathering{agent: agent, done: make(chan struct{})}
		g.timer = time.AfterFunc(gatherTimeout, func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			if l.next == g {
				c.sendGatheredLocked(key, l)
			}
		})
		l.next = g
	}
	l.next.size++
	return l.next
}

// endRequest counts out a request of the lane, and sends the LISTs that have gathered.
func (c *Coalescer) endRequest(key LaneKey) {
	c.mu.Lock()
	defer c.mu.Unlock()
	l := c.mu.lanes[key]
	l.underway--
	switch {
	case l.underway > 0:
	case l.next != nil:
		c.sendGatheredLocked(key, l)
	default:
		delete(c.mu.lanes, key)
	}
}

// sendGatheredLocked sends the LISTs that have gathered: a single one alone, others as one request.
func (c *Coalescer) sendGatheredLocked(key LaneKey, l *lane) {
	g := l.next
	g.timer.Stop()
	l.next = nil
	l.underway++
	if g.size == 1 {
		g.isCounted = true
		close(g.done)
		return
	}
	hasRoom := c.mu.sharing < sharedAnswersLimit
	if hasRoom {
		c.mu.sharing++
	}
	c.active.Go(func() {
		defer c.endRequest(key)
		defer close(g.done)
		if hasRoom {
			g.answer = c.fetch(key, g.agent)
		}
	})
}

// fetch is upstream's answer to a shared request; nil if it cannot be shared.
func (c *Coalescer) fetch(key LaneKey, agent string) *SharedAnswer {
	answer, isTooLarge := c.request(key, agent)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.sharing--
	if isTooLarge {
		if len(c.mu.large) >= largeAnswersLimit { // queries that clients made up
			clear(c.mu.large)
		}
		c.mu.large[key] = time.Now()
	}
	return answer
}

func (c *Coalescer) request(key LaneKey, agent string) (answer *SharedAnswer, isTooLarge bool) {
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
	dropHopByHop(resp.Header)
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

// Wait returns when no request is shared any more. Cancel the coalescer's context first.
func (c *Coalescer) Wait() { c.active.Wait() }
