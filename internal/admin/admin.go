// Package admin serves what operators and probes request: /livez, /readyz, /metrics, the status
// page and profiles. It has a listener of its own, so that probes do not queue behind clients.
//
// Invariant: /livez and /readyz are for all; all else is for this machine, and for remote users
// that the apiserver allows to get that very path, over TLS. Readers of metrics that were allowed
// remain so for a bounded time while no review can be had: monitoring must not depend on what it
// monitors (see readers.go). Metrics tell what a cluster holds, and the status page which user
// reads it. What clients without credentials make the process hold is bounded (see bounds.go).
package admin

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.uber.org/zap"
	"golang.org/x/sync/singleflight"

	"spillway/internal/auth"
	"spillway/internal/health"
	"spillway/internal/listen"
	"spillway/internal/status"
	"spillway/internal/tlsconn"
)

// lingerPeriod is how long scrapes and probes under way may take to end.
const lingerPeriod = 2 * time.Second

// StatusPath is where the status page is.
const StatusPath = "/statusz"

// Endpoints is what is served, and for which users.
type Endpoints struct {
	Health   *health.Checks
	Registry *prometheus.Registry
	TLS      *tls.Config      // nil: plain HTTP
	Status   *status.Reporter // nil: there is no status page
	// Access authenticates and authorizes remote users. It is called once Away returns nil; no
	// function: there are no remote users.
	Access func() (*auth.Authenticator, *auth.Authorizer)
	// Away is why the apiserver cannot review users yet, nil once it can; no function: it can.
	Away func() error
	// Exemplars are shown to scrapers that request OpenMetrics. Without them all scrapers get one
	// format, in which buckets have one name.
	Exemplars bool
	Debug     bool // serve profiles
	Log       *zap.Logger
}

// NewRegistry returns a registry that knows the process and the Go runtime.
func NewRegistry() *prometheus.Registry {
	registry := prometheus.NewRegistry()
	registry.MustRegister(
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		collectors.NewBuildInfoCollector(),
	)
	return registry
}

// Serve serves listener until ctx is done, then lets requests under way end for lingerPeriod. It
// closes the listener.
func (o *Endpoints) Serve(ctx context.Context, listener net.Listener) error {
	server := &http.Server{ // #nosec G112 -- boundServer sets its timeouts
		Handler:   o.handler(listen.IsLoopbackAddr(listener.Addr())),
		TLSConfig: o.TLS,
		ErrorLog:  zap.NewStdLog(o.Log),
	}
	boundServer(server)
	served := make(chan error, 1)
	go func() {
		if o.TLS != nil {
			served <- tlsconn.Serve(server, listener)
			return
		}
		served <- server.Serve(listener)
	}()
	select {
	case err := <-served:
		return fmt.Errorf("metrics listener %s: %w", listener.Addr(), err)
	case <-ctx.Done():
	}
	linger, cancel := context.WithTimeout(context.WithoutCancel(ctx), lingerPeriod)
	defer cancel()
	if err := server.Shutdown(linger); err != nil {
		_ = server.Close() // a profile that takes longer than lingerPeriod
	}
	if err := <-served; !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("metrics listener %s: %w", listener.Addr(), err)
	}
	return nil
}

// handler answers all probes, and all else of this machine and of remote users that the apiserver
// allows it.
func (o *Endpoints) handler(loopback bool) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", o.Health.ServeLive)
	mux.HandleFunc("GET /readyz", o.Health.ServeReady)
	if loopback {
		mux.Handle("/", o.numbers(loopbackOnly))
	} else {
		mux.Handle("/", remote{access: o.Access, away: o.Away, secure: o.TLS != nil, readers: newMetricsReaders(),
			reviews: &singleflight.Group{}, next: o.numbers(nil)})
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		listen.RequestArrived(r.Context()) // bodies are of no account here
		mux.ServeHTTP(w, r)
	})
}

// numbers answers what is not for all. What names users is served through guard; nil: all of it is
// guarded.
func (o *Endpoints) numbers(guard func(http.Handler) http.Handler) http.Handler {
	mux := http.NewServeMux()
	if o.Status != nil {
		var page http.Handler = status.NewPage(o.Status, StatusPath)
		if guard != nil {
			page = guard(page)
		}
		mux.Handle("GET "+StatusPath, page)
	}
	mux.Handle("GET "+metricsPath,
		promhttp.HandlerFor(o.Registry, promhttp.HandlerOpts{ErrorLog: zap.NewStdLog(o.Log), EnableOpenMetrics: o.Exemplars}))
	mux.HandleFunc("GET /{$}", o.serveIndex)
	if o.Debug {
		mux.HandleFunc("GET /debug/pprof/", pprof.Index)
		mux.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
		mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
		mux.HandleFunc("POST /debug/pprof/symbol", pprof.Symbol) // go tool pprof sends addresses in the body
		mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	}
	return atMost(operatorRequestsLimit, mux)
}

func (o *Endpoints) serveIndex(w http.ResponseWriter, _ *http.Request) {
	fmt.Fprint(w, "/livez\n/readyz?verbose\n/metrics\n")
	if o.Status != nil {
		fmt.Fprint(w, StatusPath+"\n")
	}
	if o.Debug {
		fmt.Fprint(w, "/debug/pprof/\n")
	}
}
