package admin

import (
	"net/http"
	"time"

	"spillway/internal/listen"
)

// connectionsLimit and headBytes together bound what clients without credentials make the process
// hold.
const (
	// connectionsLimit is how many connections there are at a time. At the limit, a new one replaces
	// one without a complete request.
	connectionsLimit = 64
	// headBytes bounds the head of a request. net/http adds 4 KiB.
	headBytes = 16 << 10
	// requestsLimit is how many expensive answers (metrics, status page, profiles) are made at a time.
	requestsLimit = 8
	// readTimeout bounds a request's arrival, also of a TLS handshake.
	readTimeout = 10 * time.Second
	// writeTimeout bounds an answer. pprof extends it for its profiles.
	writeTimeout = 30 * time.Second
	// idleTimeout is how long a connection is kept between two requests.
	idleTimeout = 2 * time.Minute
)

// boundServer limits a listener that any pod may reach. The handler must call
// listen.RequestArrived. HTTP/2 is off: its streams and header tables would need limits of their
// own.
func boundServer(server *http.Server) {
	server.MaxHeaderBytes = headBytes
	server.ReadHeaderTimeout, server.ReadTimeout = readTimeout, readTimeout
	server.WriteTimeout, server.IdleTimeout = writeTimeout, idleTimeout
	server.Protocols = new(http.Protocols)
	server.Protocols.SetHTTP1(true)
	listen.LimitConns(server, connectionsLimit)
}

// atMost answers up to limit requests at a time, and the others with 503 and Retry-After: they do
// not wait.
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
