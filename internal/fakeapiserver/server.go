// Package fakeapiserver is a small API server for tests. It serves reads and watches as
// kube-apiserver does, stores what its methods write, and misbehaves on command.
//
// Invariant: whatever it serves is true of its storage at the resourceVersion it claims. A fault
// changes when bytes arrive, and whether they do, never what they say; only RestoreFrom turns time
// back, as a restored etcd does.
//
// Storage is like etcd: one revision counter, and per resource the objects and every change to
// them. The open watches of a resource have received a prefix of its changes. What they have not
// received is real (W-212), and some faults make it more.
package fakeapiserver

import (
	"cmp"
	"encoding/pem"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
)

const (
	// tooLargeWait is how long a read waits for a resourceVersion that has not come yet
	// (kube-apiserver: 3 s, W-65).
	tooLargeWait = 50 * time.Millisecond
	// requestTimeout bounds every request but watches (W-28).
	requestTimeout = time.Minute
	// minWatchTimeout is m of W-29: a watch without timeoutSeconds lasts between m and 2m.
	minWatchTimeout = 30 * time.Minute
)

// Options says how a Server differs from kube-apiserver with default flags. The zero value is ready
// to use in unit tests.
type Options struct {
	TLS   bool // serve https with a throw-away certificate
	HTTP2 bool // offer h2 by ALPN; implies TLS

	// BookmarkPeriod is the time between two bookmarks of a watch (0: 60 s, W-111).
	BookmarkPeriod time.Duration
	// ProofDelay is when a watch with timeoutSeconds 3 to 5 gets its bookmark (0: about 2 s before its
	// deadline, as measured, W-111).
	ProofDelay time.Duration
	// Warning is added to every answer, as an API server does that warns of the client's credentials
	// ("": none).
	Warning string
	// Kubernetes is the kube-apiserver that it behaves as (zero: Kubernetes137).
	Kubernetes Kubernetes
	// Writes serves POST of an object and DELETE of one, for clients such as curl. Without it, only
	// the methods of Server write.
	Writes bool
	// Resources are served besides the built-in ones, as custom resources unless their kind is known
	// to client-go's scheme.
	Resources []Resource
}

func (o Options) withDefaults() Options {
	o.TLS = o.TLS || o.HTTP2
	o.BookmarkPeriod = cmp.Or(o.BookmarkPeriod, time.Minute)
	o.Kubernetes = cmp.Or(o.Kubernetes, Kubernetes137)
	return o
}

// Server is one API server with its own etcd. Everything below mu is guarded by it; critical
// sections never block. All methods may be called at any time from any goroutine.
type Server struct {
	URL string

	opts     Options
	http     *httptest.Server
	listener *listener
	done     chan struct{}
	closing  sync.Once

	mu         sync.Mutex
	rev        uint64                                 // revision of the last write
	compacted  uint64                                 // states before this revision are gone
	tables     map[schema.GroupVersionResource]*table // one per resource
	order      []*table                               // tables, in the order they were declared
	wake       chan struct{}                          // closed and replaced whenever anything here changes
	faults     faults                                 // what the test asked for
	requests   []Request                              // the latest, oldest first
	handlers   map[string]http.Handler                // of Handle, by path prefix
	kubernetes Kubernetes                             // what it behaves as
	timers     map[*time.Timer]struct{}               // deliveries that DelayWatch delays
}

// New starts a Server with no objects at revision 1. Close it.
func New(o Options) *Server {
	o = o.withDefaults()
	s := &Server{
		opts: o, rev: 1, done: make(chan struct{}), wake: make(chan struct{}), kubernetes: o.Kubernetes,
		tables: map[schema.GroupVersionResource]*table{}, handlers: map[string]http.Handler{},
		timers: map[*time.Timer]struct{}{},
	}
	for _, r := range append(builtins(), o.Resources...) {
		t := newTable(r.complete(), s.rev)
		s.tables[r.GVR] = t
		s.order = append(s.order, t)
	}
	s.start()
	return s
}

// start opens the listener and begins to serve.
func (s *Server) start() {
	l, err := newListener()
	if err != nil {
		panic("fakeapiserver: " + err.Error()) // as httptest does
	}
	s.listener = l
	h := &httptest.Server{Listener: l, EnableHTTP2: s.opts.HTTP2, Config: &http.Server{
		Handler:     s,
		ErrorLog:    log.New(io.Discard, "", 0), // aborted handshakes and streams are what tests do here
		ConnContext: withConn,
	}}
	if s.opts.TLS {
		h.StartTLS()
	} else {
		h.Start()
	}
	s.http, s.URL = h, h.URL
}

// Config is a client configuration for this server: JSON, no client-side rate limit.
func (s *Server) Config() *rest.Config {
	c := &rest.Config{Host: s.URL, QPS: -1}
	c.ContentType = "application/json"
	if s.opts.TLS {
		c.CAData = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.http.Certificate().Raw})
	}
	return c
}

// Client is an HTTP client that trusts this server. There is one per server, so its users share
// connections.
func (s *Server) Client() *http.Client { return s.http.Client() }

// Close ends all streams and connections and waits for the handlers. It is idempotent.
func (s *Server) Close() {
	s.closing.Do(func() {
		close(s.done)
		s.mu.Lock()
		for t := range s.timers {
			t.Stop()
		}
		s.changedLocked()
		s.mu.Unlock()
		s.listener.shut()
		s.http.Close()
	})
}

// table returns the table of a resource; asking for one that is not served is a mistake in the
// test.
func (s *Server) table(gvr schema.GroupVersionResource) *table {
	if t := s.tables[gvr]; t != nil {
		return t
	}
	panic("BUG: fakeapiserver does not serve " + gvr.String() + "; add it to Options.Resources")
}
