package main

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

	"spillway/internal/listen"
	"spillway/internal/serve"
	"spillway/internal/status"
)

// lingerPeriod is how long scrapes and probes under way may take to end.
const lingerPeriod = 2 * time.Second

// observability serves what operators ask: is it alive, is it ready, what are its numbers. It has a listener of its own so that
// probes do not queue behind clients. Metrics tell what a cluster holds, and the status page who reads it: on anything but loopback they are for
// those whom the apiserver allows to get them, over TLS.
type observability struct {
	health   *health
	registry *prometheus.Registry
	tls      *tls.Config      // nil: plain HTTP
	status   *status.Reporter // nil: there is no status page
	access   *serve.Access    // finds out about strangers; nil: nobody does
	away     func() error     // why it cannot yet, nil once it can; no function: it can
	// exemplars are told to who asks for OpenMetrics. Without any, all get one format, in which buckets have one name.
	exemplars bool
	debug     bool
	log       *zap.Logger
}

// newRegistry returns a registry that knows the process and the Go runtime.
func newRegistry() *prometheus.Registry {
	registry := prometheus.NewRegistry()
	registry.MustRegister(
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		collectors.NewBuildInfoCollector(),
	)
	return registry
}

// run serves listener until ctx is done, then lets requests under way end for lingerPeriod. It closes the listener.
func (o *observability) run(ctx context.Context, listener net.Listener) error {
	bounded := newBoundedListener(listener, operatorConnectionsLimit)
	server := &http.Server{ // #nosec G112 -- boundServer sets its timeouts
		Handler:   o.handler(listen.IsLoopbackAddr(listener.Addr())),
		TLSConfig: o.tls,
		ConnState: bounded.connState,
		ErrorLog:  zap.NewStdLog(o.log),
	}
	boundServer(server)
	served := make(chan error, 1)
	go func() {
		if o.tls != nil {
			served <- server.ServeTLS(bounded, "", "")
			return
		}
		served <- server.Serve(bounded)
	}()
	select {
	case err := <-served:
		return fmt.Errorf("metrics listener %s: %w", listener.Addr(), err)
	case <-ctx.Done():
	}
	linger, cancel := context.WithTimeout(context.WithoutCancel(ctx), lingerPeriod)
	defer cancel()
	if err := server.Shutdown(linger); err != nil {
		_ = server.Close() // a profile that takes longer than we are willing to wait
	}
	if err := <-served; !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("metrics listener %s: %w", listener.Addr(), err)
	}
	return nil
}

// handler answers probes of everybody, and all else those on this machine, and strangers whom the apiserver allows it.
func (o *observability) handler(loopback bool) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", o.health.serveLive)
	mux.HandleFunc("GET /readyz", o.health.serveReady)
	if loopback {
		mux.Handle("/", o.numbers(toLocal))
	} else {
		mux.Handle("/", strangers{access: o.access, away: o.away, secure: o.tls != nil, next: o.numbers(nil)})
	}
	return mux
}

// numbers answers what is not for everybody. What names people is served through guard; nil: all of it is guarded.
func (o *observability) numbers(guard func(http.Handler) http.Handler) http.Handler {
	mux := http.NewServeMux()
	if o.status != nil {
		var page http.Handler = status.NewPage(o.status, statusPath)
		if guard != nil {
			page = guard(page)
		}
		mux.Handle("GET "+statusPath, page)
	}
	mux.Handle("GET /metrics", promhttp.HandlerFor(o.registry, promhttp.HandlerOpts{ErrorLog: zap.NewStdLog(o.log), EnableOpenMetrics: o.exemplars}))
	mux.HandleFunc("GET /{$}", o.serveIndex)
	if o.debug {
		mux.HandleFunc("GET /debug/pprof/", pprof.Index)
		mux.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
		mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
		mux.HandleFunc("POST /debug/pprof/symbol", pprof.Symbol) // go tool pprof sends addresses in the body
		mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	}
	return atMost(operatorRequestsLimit, mux)
}

func (o *observability) serveIndex(w http.ResponseWriter, _ *http.Request) {
	fmt.Fprint(w, "/livez\n/readyz?verbose\n/metrics\n")
	if o.status != nil {
		fmt.Fprint(w, statusPath+"\n")
	}
	if o.debug {
		fmt.Fprint(w, "/debug/pprof/\n")
	}
}
