package admin

import (
	"net/http"
	"time"

	"spillway/internal/listen"
)

const (
	// operatorConnectionsLimit is how many connections operators and probes have at a time, and
	// operatorHeadBytes how large a request's head may be (net/http adds 4 KiB): together they
	// bound what clients without credentials make the process hold.
	operatorConnectionsLimit = 64
	operatorHeadBytes        = 16 << 10
	// operatorRequestsLimit is how many answers of size (metrics, the status page, profiles) are made
	// at a time.
	operatorRequestsLimit = 8

	operatorReadTimeout  = 10 * time.Second
	operatorWriteTimeout = 30 * time.Second // pprof extends it for its profiles
	operatorIdleTimeout  = 2 * time.Minute
)

// boundServer gives a server of small answers the limits of a listener that any pod may reach.
// HTTP/2 is off: its streams and header tables would need limits of their own.
func boundServer(server *http.Server) {
	server.MaxHeaderBytes = operatorHeadBytes
	server.ReadHeaderTimeout, server.ReadTimeout = operatorReadTimeout, operatorReadTimeout
	server.WriteTimeout, server.IdleTimeout = operatorWriteTimeout, operatorIdleTimeout
	server.Protocols = new(http.Protocols)
	server.Protocols.SetHTTP1(true)
	listen.LimitConns(server, operatorConnectionsLimit)
}

// atMost lets a number of requests be answered at a time, and refuses the others.
func atMost(limit int, next http.Handler) http.Handler {
	seats := make(chan struct{}, limit)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case seats <- struct{}{}:
			defer func() { <-seats }()
			next.ServeHTTP(w, r)
		default:
			w.Header().Set("Retry-After", "1")
			http.Error(w, "too many requests are being answered here: try again", http.StatusServiceUnavailable)
		}
	})
}
