package admission

import (
	"crypto/tls"
	"net/http"
	"time"

	"go.uber.org/zap"

	"spillway/internal/listen"
)

const (
	// connectionLimit also bounds the reviews in progress: the API server sends one after another over
	// each connection.
	connectionLimit = 128
	// httpHeadLimitBytes bounds the head of a request. net/http adds 4 KiB. The API server sends a few
	// hundred bytes. Once parsed, a head may take thirty times as much.
	httpHeadLimitBytes = 4 << 10

	headTimeout = 5 * time.Second // also of a TLS handshake
	// requestTimeout bounds head and body. ServeHTTP sets a shorter one (waitTimeout).
	requestTimeout = 10 * time.Second
	// answerTimeout counts from the end of the head, so it is longer than requestTimeout.
	answerTimeout = 15 * time.Second
	// idleTimeout is longer than the API server's own (90 s): a review fails if its connection is
	// being closed.
	idleTimeout = 2 * time.Minute
)

// NewServer makes a server for reviews. It speaks HTTP/1.1 alone, as the API server does to
// webhooks, so connections bound requests. h must call listen.RequestArrived. NewServer changes
// config.
func NewServer(h http.Handler, config *tls.Config, log *zap.Logger) *http.Server {
	config.NextProtos = []string{"http/1.1"}
	server := &http.Server{
		Handler:           h,
		TLSConfig:         config,
		MaxHeaderBytes:    httpHeadLimitBytes,
		ReadHeaderTimeout: headTimeout,
		ReadTimeout:       requestTimeout,
		WriteTimeout:      answerTimeout,
		IdleTimeout:       idleTimeout,
		ErrorLog:          zap.NewStdLog(log),
		Protocols:         new(http.Protocols),
	}
	server.Protocols.SetHTTP1(true)
	listen.LimitConns(server, connectionLimit)
	return server
}
