package upstream

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"spillway/internal/fakeapiserver"
)

func answering(code int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
}

// closedConn is a connection whose other end has closed it.
type closedConn struct {
	net.Conn
	noticed chan struct{}
	once    sync.Once
}

func (g *closedConn) Read([]byte) (int, error) { return 0, io.EOF }

func (g *closedConn) Close() error {
	g.once.Do(func() { close(g.noticed) })
	return g.Conn.Close()
}

// A balancer without a backend closes what it has accepted, perhaps before there is a request.
func TestUnavailableBeforeTheRequest(t *testing.T) {
	near, far := net.Pipe()
	defer far.Close()
	conn := &closedConn{Conn: near, noticed: make(chan struct{})}
	transport := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) { return conn, nil }}
	ctx := httptrace.WithClientTrace(deadline(t),
		&httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { <-conn.noticed }})
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://upstream/", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := transport.RoundTrip(req)
	if err == nil {
		resp.Body.Close()
		t.Fatal("an answer")
	}
	if !IsUnavailable(err) {
		t.Errorf("not unavailable: %v", err)
	}
}

// The start retries while upstream is unavailable, or says that it is not ready; and no longer.
func TestAwait(t *testing.T) {
	s, c := apiserver(t, fakeapiserver.Options{TLS: true})
	s.Down()
	var missed atomic.Int32
	await := func(ask func(context.Context) error) error {
		missed.Store(0)
		return c.Await(deadline(t), ask, func(err error, again time.Duration) {
			if err == nil || again <= 0 || again > 2*maxPause {
				t.Errorf("%v, again in %v", err, again)
			}
			if missed.Add(1) == 2 {
				if err := s.Up(); err != nil {
					t.Error(err)
				}
				s.Handle("/readyz", answering(http.StatusOK))
			}
		})
	}
	if err := await(c.Check); err != nil || missed.Load() < 2 {
		t.Errorf("%v after %d", err, missed.Load())
	}
	no := errors.New("no")
	refuse := func(context.Context) error { return no }
	if err := await(refuse); !errors.Is(err, no) || missed.Load() != 0 {
		t.Errorf("%v after %d", err, missed.Load())
	}
	untrusting := clientFor(t, &rest.Config{Host: s.URL})
	if err := untrusting.Await(deadline(t), untrusting.Check, func(err error, _ time.Duration) {
		t.Errorf("asked again after %v", err)
	}); err == nil {
		t.Error("an untrusted server will do")
	}
	for _, code := range []int{http.StatusInternalServerError, http.StatusForbidden} { // it has yet to read its rules
		s.Handle("/readyz", answering(code))
		if err := await(refuse); !errors.Is(err, no) || missed.Load() != 2 {
			t.Errorf("%d: %v after %d", code, err, missed.Load())
		}
	}
	s.Handle("/readyz", answering(http.StatusUnauthorized))
	if err := await(refuse); !errors.Is(err, no) || missed.Load() != 0 {
		t.Errorf("%v after %d", err, missed.Load())
	}
	s.Down() // and then it may be that it cannot know our credentials yet
	if err := await(func(ctx context.Context) error {
		if missed.Load() == 0 {
			return c.Check(ctx)
		}
		return no
	}); !errors.Is(err, no) || missed.Load() != 2 {
		t.Errorf("%v after %d", err, missed.Load())
	}
	s.Down()
	ended, cancel := context.WithCancelCause(t.Context())
	err := c.Await(ended, c.Check, func(error, time.Duration) { cancel(no) })
	if !errors.Is(err, no) {
		t.Errorf("%v", err)
	}
}
