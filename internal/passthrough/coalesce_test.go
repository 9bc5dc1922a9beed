package passthrough

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"spillway/internal/plan"
)

// lister is an upstream that answers when the test lets it, each time with another body.
type lister struct {
	mu      sync.Mutex
	asked   []*http.Request
	answers chan *http.Response
}

// RoundTrip implements http.RoundTripper.
func (l *lister) RoundTrip(r *http.Request) (*http.Response, error) {
	l.mu.Lock()
	l.asked = append(l.asked, r)
	l.mu.Unlock()
	select {
	case resp := <-l.answers:
		if resp == nil {
			return nil, errors.New("upstream is gone")
		}
		return resp, nil
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
}

func (l *lister) requests() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.asked)
}

func answerOf(code int, body string) *http.Response {
	return &http.Response{StatusCode: code, Body: io.NopCloser(strings.NewReader(body)), Header: http.Header{
		"Content-Type": {"application/json"}, "Audit-Id": {"upstream's"}, "Date": {"then"}, "Connection": {"keep-alive"},
	}}
}

// written is a responder that keeps what is written.
type written struct {
	set  http.Header
	code int
	body bytes.Buffer
}

func (w *written) RequestHeader(string) string { return "" }
func (w *written) SetHeader(key, value string) { w.set.Set(key, value) }
func (w *written) Send(code int, body []byte)  { w.code = code; w.body.Write(body) }
func (w *written) HangUp()                     {}
func (w *written) Stream(code int, b io.WriterTo, _ int64) {
	w.code = code
	_, _ = b.WriteTo(&w.body)
}

// listSender sends LISTs through a coalescer.
type listSender struct {
	t         *testing.T
	upstream  *lister
	coalescer *Coalescer
	asked     sync.WaitGroup

	mu      sync.Mutex
	alone   int // passed through by themselves
	shared  []*written
	release chan struct{} // delivers the response heads of requests that pass alone
}

const listOfPods = "/api/v1/pods?limit=500"

func inCrowd(t *testing.T, test func(c *listSender)) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		c := &listSender{t: t, upstream: &lister{answers: make(chan *http.Response)}, release: make(chan struct{})}
		c.coalescer = NewCoalescer(ctx, c.upstream, &url.URL{Scheme: "https", Host: "upstream"})
		test(c)
		cancel()
		c.coalescer.Wait()
		c.asked.Wait()
		if n := len(c.coalescer.mu.lanes); n != 0 || c.coalescer.mu.sharing != 0 {
			t.Errorf("%d lanes and %d shared requests are left", n, c.coalescer.mu.sharing)
		}
	})
}

// list sends one request, and returns once every goroutine is blocked.
func (c *listSender) list(r plan.Request) {
	c.asked.Go(func() {
		shared, landed := c.coalescer.Share(LaneKeyOf(r, "gzip"), r.UserAgent)
		if shared == nil {
			defer landed()
			c.mu.Lock()
			c.alone++
			c.mu.Unlock()
			<-c.release
			return
		}
		w := &written{set: http.Header{}}
		shared.NewAnswer().Write(w)
		c.mu.Lock()
		defer c.mu.Unlock()
		c.shared = append(c.shared, w)
	})
	synctest.Wait()
}

func (c *listSender) expect(alone, requests, shared int) {
	c.t.Helper()
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.alone != alone || c.upstream.requests() != requests || len(c.shared) != shared {
		c.t.Errorf("%d passed alone, %d requests were shared, by %d; want %d, %d, %d",
			c.alone, c.upstream.requests(), len(c.shared), alone, requests, shared)
	}
}

var pods500 = plan.Request{Method: "GET", Path: "/api/v1/pods", RawQuery: "limit=500", Accept: "application/json",
	UserAgent: "one"}

// Requests that arrive while upstream handles an equal one share the next that is sent, and never
// one that was sent before they arrived.
func TestEqualRequestsShareTheNextAnswer(t *testing.T) {
	inCrowd(t, func(c *listSender) {
		c.list(pods500)
		c.expect(1, 0, 0)
		for range 10 {
			c.list(pods500)
		}
		c.expect(1, 0, 0)
		c.release <- struct{}{}
		c.expect(1, 1, 0)
		for range 5 { // too late for the one that is under way
			c.list(pods500)
		}
		c.upstream.answers <- answerOf(http.StatusOK, "first")
		c.expect(1, 2, 10)
		c.upstream.answers <- answerOf(http.StatusOK, "second")
		c.expect(1, 2, 15)
		for i, w := range c.shared {
			want := "first"
			if i >= 10 {
				want = "second"
			}
			if w.code != http.StatusOK || w.body.String() != want {
				t.Errorf("answer %d: %d %s", i, w.code, &w.body)
			}
			h := w.set
			if h.Get("Audit-Id") == "" || h.Get("Audit-Id") == "upstream's" || h.Get("Content-Type") != "application/json" ||
				h.Get("Date")+h.Get("Connection") != "" {
				t.Errorf("headers %v", h)
			}
		}
		r := c.upstream.asked[0]
		if r.URL.String() != "https://upstream"+listOfPods || r.Header.Get("Accept") != "application/json" ||
			r.Header.Get("Accept-Encoding") != "gzip" ||
			r.Header.Get("User-Agent") != "one" {
			t.Errorf("%s with %v", r.URL, r.Header)
		}
	})
}

// A request with the proxy's own credentials is built from what was parsed and authorised, not from
// the client's bytes. A session that upstream opens for these credentials is not shared.
func TestSharedRequestIsOfWhatWasParsed(t *testing.T) {
	inCrowd(t, func(c *listSender) {
		odd := pods500
		odd.Path, odd.RawQuery = "/api%2Fv1/n%61mespaces/a/pods/",
			"limit=%zz&%6cimit=5&b;c&limit=6&labelSelector=a+in+(b)&&=#&d= e"
		for range 3 {
			c.list(odd)
		}
		c.release <- struct{}{}
		answer := answerOf(http.StatusOK, "all")
		answer.Header.Set("Set-Cookie", "session=own")
		c.upstream.answers <- answer
		c.expect(1, 1, 2)
		if got, want := c.upstream.asked[0].URL.String(),
			"https://upstream/api/v1/namespaces/a/pods?=%23&d=+e&labelSelector=a+in+%28b%29&limit=5&limit=6"; got != want {
			t.Errorf("asked %s, want %s", got, want)
		}
		for _, w := range c.shared {
			if w.set.Get("Set-Cookie") != "" {
				t.Error("a client was handed a session of the proxy's")
			}
		}
	})
}

// Requests with a long query are not coalesced: each passes through alone.
func TestLongListsAreNotShared(t *testing.T) {
	inCrowd(t, func(c *listSender) {
		long := pods500
		long.RawQuery += "&labelSelector=" + strings.Repeat("a", laneKeyBytesLimit)
		for range 3 {
			c.list(long)
		}
		c.expect(3, 0, 0)
		if n := len(c.coalescer.mu.lanes); n > 0 {
			t.Errorf("%d lanes", n)
		}
		for range 3 {
			c.release <- struct{}{}
		}
	})
}

// A request that has gathered no other passes through alone, and later ones gather behind it.
func TestNoRequestToShareWith(t *testing.T) {
	inCrowd(t, func(c *listSender) {
		for range 2 {
			c.list(pods500)
		}
		c.expect(1, 0, 0)
		c.release <- struct{}{}
		c.expect(2, 0, 0)
		c.list(pods500)
		c.list(pods500)
		c.expect(2, 0, 0)
		c.release <- struct{}{}
		c.expect(2, 1, 0)
		c.upstream.answers <- answerOf(http.StatusOK, "")
		c.expect(2, 1, 2)
	})
}

// Requests to which upstream may give different answers share nothing.
func TestRequestsWithOtherAnswersShareNothing(t *testing.T) {
	inCrowd(t, func(c *listSender) {
		c.list(pods500)
		others := []plan.Request{pods500, pods500, pods500, pods500, pods500}
		others[0].Path = "/api/v1/namespaces/a/pods"
		others[1].RawQuery = ""
		others[2].Accept = "application/yaml"
		others[3].UserAgent = "curl/8"
		others[4].RawQuery = "limit=500&pretty=false"
		for _, r := range others {
			c.list(r)
		}
		same := pods500
		same.UserAgent = "another"
		c.list(same)
		c.expect(1+len(others), 0, 0)
		close(c.release)
	})
}

// An answer that is for one client alone, or too large to keep, is not shared: each request passes
// through.
func TestPrivateAndLargeAnswersAreNotShared(t *testing.T) {
	twice := answerOf(http.StatusOK, "")
	twice.Header["Warning"] = []string{"one", "two"}
	for name, answer := range map[string]*http.Response{
		"forbidden": answerOf(http.StatusForbidden, "no"), "no answer": nil,
		"too large":              answerOf(http.StatusOK, strings.Repeat("x", sharedBytesLimit+1)),
		"two values of a header": twice,
	} {
		t.Run(name, func(t *testing.T) {
			inCrowd(t, func(c *listSender) {
				for range 4 {
					c.list(pods500)
				}
				c.release <- struct{}{}
				c.upstream.answers <- answer
				c.expect(4, 1, 0)
				close(c.release)
				synctest.Wait()
				c.list(pods500)
				c.list(pods500)
				c.expect(6, 1, 0)
			})
		})
	}
}

// An overloaded upstream is not asked by each.
func TestOverloadIsShared(t *testing.T) {
	inCrowd(t, func(c *listSender) {
		for range 4 {
			c.list(pods500)
		}
		c.release <- struct{}{}
		c.upstream.answers <- answerOf(http.StatusTooManyRequests, "later")
		c.expect(1, 1, 3)
	})
}

// A request that is stuck upstream delays the ones behind it for a limited time only, and so does a
// shared request.
func TestStuckUpstream(t *testing.T) {
	inCrowd(t, func(c *listSender) {
		for range 3 {
			c.list(pods500)
		}
		time.Sleep(gatherTimeout - time.Nanosecond)
		c.expect(1, 0, 0)
		time.Sleep(time.Nanosecond)
		c.expect(1, 1, 0)
		for range 2 {
			c.list(pods500)
		}
		time.Sleep(gatherTimeout)
		c.expect(1, 2, 0)
		time.Sleep(sharedTimeout)
		c.expect(5, 2, 0)
		close(c.release)
	})
}

// Shared answers are kept in memory, so not many at once: beyond that each passes through.
func TestSharingIsBounded(t *testing.T) {
	inCrowd(t, func(c *listSender) {
		for i := range sharedAnswersLimit + 1 {
			r := pods500
			r.RawQuery = fmt.Sprint("limit=", i)
			for range 3 {
				c.list(r)
			}
			c.release <- struct{}{}
			synctest.Wait()
		}
		c.expect(sharedAnswersLimit+1+2, sharedAnswersLimit, 0)
		close(c.release)
		for range sharedAnswersLimit {
			c.upstream.answers <- answerOf(http.StatusOK, "")
		}
		c.expect(sharedAnswersLimit+3, sharedAnswersLimit, 2*sharedAnswersLimit)
	})
}

// Without credentials of its own the proxy asks nothing for others.
func TestNothingToShareWith(t *testing.T) {
	inCrowd(t, func(c *listSender) {
		c.coalescer.transport = nil
		for range 3 {
			c.list(pods500)
		}
		c.expect(3, 0, 0)
		close(c.release)
	})
}
