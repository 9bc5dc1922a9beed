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
	// headLimitBytes bounds the head of a request; net/http adds 4 KiB. The API server sends some
	// hundred bytes. Once parsed, a head may take thirty times as much.
	headLimitBytes = 4 << 10

	headTimeout   = 5 * time.Second // also of a TLS handshake
	bodyTimeout   = 10 * time.Second
	answerTimeout = 15 * time.Second
	// idleTimeout is longer than the API server's own: a review fails if its connection is being
	// closed.
	idleTimeout = 2 * time.Minute
)

// Server makes a server for reviews. It speaks HTTP/1.1 alone, as the API server does to webhooks,
// so connections bound requests.
func Server(h http.Handler, config *tls.Config, log *zap.Logger) *http.Server {
	config.NextProtos = []string{"http/1.1"}
	server := &http.Server{
		Handler:           h,
		TLSConfig:         config,
		MaxHeaderBytes:    headLimitBytes,
		ReadHeaderTimeout: headTimeout,
		ReadTimeout:       bodyTimeout,
		WriteTimeout:      answerTimeout,
		IdleTimeout:       idleTimeout,
		ErrorLog:          zap.NewStdLog(log),
		Protocols:         new(http.Protocols),
	}
	server.Protocols.SetHTTP1(true)
	listen.LimitConns(server, connectionLimit)
	return server
}
