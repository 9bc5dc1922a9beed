// Package admin serves what operators and probes request: /livez, /readyz, /metrics, the status
// page and profiles. It has a listener of its own, so that probes do not queue behind clients.
//
// Invariant: /livez and /readyz are for all; all else is for this machine, and for remote users
// that the API server allows to get that very path, over TLS. Readers of metrics that were allowed
// remain so for a bounded time while no review can be had: monitoring must not depend on what it
// monitors. Metrics tell what a cluster holds, and the status page which user reads it. What
// clients without credentials make the process hold is bounded.
package admin

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"
	"strings"
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
	// Access authenticates and authorizes remote users. It is called once Unreachable returns nil. No
	// function: there are no remote users.
	Access func() (*auth.Authenticator, *auth.Authorizer)
	// Unreachable is why the API server cannot review users yet, nil once it can. No function: it can.
	Unreachable func() error
	// Exemplars are shown to scrapers that request OpenMetrics. Without them all scrapers get one
	// format, in which buckets have one name.
	Exemplars bool
	Debug     bool // profiles are served
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
func (e *Endpoints) Serve(ctx context.Context, listener net.Listener) error {
	server := &http.Server{ // #nosec G112 -- boundServer sets its timeouts
		Handler:   e.handler(listen.IsLoopbackAddr(listener.Addr())),
		TLSConfig: e.TLS,
		ErrorLog:  zap.NewStdLog(e.Log),
	}
	boundServer(server)
	served := make(chan error, 1)
	go func() {
		if e.TLS != nil {
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

// handler answers all probes, and all else of this machine and of remote users that the API server
// allows it.
func (e *Endpoints) handler(loopback bool) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", e.Health.ServeLive)
	mux.HandleFunc("GET /readyz", e.Health.ServeReady)
	operators := e.operatorsHandler(loopback)
	if !loopback {
		operators = &remoteUsers{access: e.Access, unreachable: e.Unreachable, secure: e.TLS != nil,
			readers: newMetricsReaders(), reviews: &singleflight.Group{}, next: operators}
	}
	mux.Handle("/", operators)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		listen.RequestArrived(r.Context()) // bodies are of no account here
		mux.ServeHTTP(w, r)
	})
}

// operatorsHandler answers what is not for all.
func (e *Endpoints) operatorsHandler(loopback bool) http.Handler {
	mux := http.NewServeMux()
	if e.Status != nil {
		var page http.Handler = status.NewPage(e.Status, StatusPath)
		if loopback {
			page = loopbackOnly(page)
		}
		mux.Handle("GET "+StatusPath, page)
	}
	mux.Handle("GET "+metricsPath,
		promhttp.HandlerFor(e.Registry, promhttp.HandlerOpts{ErrorLog: zap.NewStdLog(e.Log), EnableOpenMetrics: e.Exemplars}))
	mux.HandleFunc("GET /{$}", e.serveIndex)
	if e.Debug {
		mux.HandleFunc("GET /debug/pprof/", pprof.Index)
		mux.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
		mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
		mux.HandleFunc("POST /debug/pprof/symbol", pprof.Symbol) // go tool pprof sends addresses in the body
		mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	}
	return atMost(requestsLimit, mux)
}

func (e *Endpoints) serveIndex(w http.ResponseWriter, _ *http.Request) {
	fmt.Fprint(w, "/livez\n/readyz?verbose\n/metrics\n")
	if e.Status != nil {
		fmt.Fprint(w, StatusPath+"\n")
	}
	if e.Debug {
		fmt.Fprint(w, "/debug/pprof/\n")
	}
}

// loopbackOnly serves requests for this machine by a name that no other machine can have: web pages
// reach loopback by names of their own, which then mean it (DNS rebinding), and would read which
// user watches what.
func loopbackOnly(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host := r.Host
		if name, _, err := net.SplitHostPort(host); err == nil {
			host = name
		}
		ip := net.ParseIP(strings.Trim(host, "[]"))
		if !strings.EqualFold(host, "localhost") && (ip == nil || !ip.IsLoopback()) {
			http.Error(w, "forbidden: ask for this page at localhost, 127.0.0.1 or [::1]", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}
