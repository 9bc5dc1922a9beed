package http1

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/valyala/fasthttp"
	"go.uber.org/zap"
	"golang.org/x/net/http2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"spillway/internal/apistatus"
	"spillway/internal/clientconn"
	"spillway/internal/flowcontrol"
	"spillway/internal/passthrough"
	"spillway/internal/watch"
)

// ServerOptions configure a ListenerServer.
type ServerOptions struct {
	// Handle answers a request.
	Handle func(c Call)
	// HTTP2 serves a connection on which the client chose HTTP/2, maybe beyond its return, and closes
	// it.
	HTTP2 func(c net.Conn)

	Forwarder *passthrough.Forwarder
	// Identity decides whose credentials requests that pass through have upstream.
	Identity passthrough.IdentityMode
	// Trusted: the listener trusts all of its clients.
	Trusted bool
	Watches *watch.Manager
	Poller  *clientconn.Poller        // nil: clients that leave are not noticed
	Heads   *flowcontrol.HeaderBudget // of large heads; nil: they are not bounded

	Arrivals     clientconn.ReadTimeouts
	StallTimeout time.Duration // how long a client may take nothing; 0: as long as it likes
	IdleTimeout  time.Duration // how long a connection without requests is kept
	// Panicked reports what a panic of a handler was about.
	Panicked func(p any)
	Log      *zap.Logger
}

// ListenerServer serves the HTTP/1.1 connections of one listener.
type ListenerServer struct {
	opts ServerOptions
	fast *fasthttp.Server
}

// New makes a server without a listener.
func New(o ServerOptions) *ListenerServer {
	s := &ListenerServer{opts: o}
	s.fast = s.newFastServer(OrdinaryHeadBytes)
	s.fast.ErrorHandler = func(ctx *fasthttp.RequestCtx, err error) {
		if !s.serveIfLarge(ctx.Conn(), err) {
			rejectUnreadable(ctx, err)
		}
	}
	s.fast.Handler = s.Handler()
	s.fast.NextProto(http2.NextProtoTLS, func(c net.Conn) error {
		if h := headConnOf(c); h != nil {
			h.detach() // fasthttp closes what it has
		}
		o.HTTP2(unwrapHeadConn(c))
		return nil
	})
	return s
}

// Serve answers requests on ln until shutdown or an error of ln.
func (s *ListenerServer) Serve(ln net.Listener) error { return s.fast.Serve(headListener{ln}) }

// Shutdown waits for requests under way. The listener is closed already.
func (s *ListenerServer) Shutdown(ctx context.Context) error {
	if err := s.fast.ShutdownWithContext(ctx); !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}

// newFastServer is a fasthttp.Server without a handler that takes heads of so many bytes.
func (s *ListenerServer) newFastServer(head int) *fasthttp.Server {
	return &fasthttp.Server{
		KeepHijackedConns:            true,
		StreamRequestBody:            true,
		DisablePreParseMultipartForm: true,
		ReduceMemoryUsage:            true,
		ReadBufferSize:               head,
		NoDefaultServerHeader:        true,
		NoDefaultContentType:         true,
		CloseOnShutdown:              true,
		ReadTimeout:                  s.opts.Arrivals.Head,
		HeaderReceived:               s.bodyConfig,
		SecureErrorLogMessage:        true, // else what could not be read is logged with its bytes, credentials and all
		ErrorHandler:                 rejectUnreadable,
		ConnState:                    followConnState,
		IdleTimeout:                  s.opts.IdleTimeout,
		TCPKeepalive:                 true,
		TCPKeepalivePeriod:           15 * time.Second,
		Concurrency:                  1 << 20,
		Logger:                       serverLog{s.opts.Log},
	}
}

// serverLog takes fasthttp's log lines, which are about single connections. Its errors quote what
// could not be read, which may be a credential (also with SecureErrorLogMessage), so of them only
// those of the network are logged, and of others the type.
type serverLog struct{ log *zap.Logger }

// Printf implements fasthttp.Logger.
func (l serverLog) Printf(format string, args ...any) {
	for i, arg := range args {
		if err, ok := arg.(error); ok {
			args[i] = errorKind(err)
		}
	}
	l.log.Debug(fmt.Sprintf(format, args...), zap.String("component", "fasthttp"))
}

// errorKind is what may be logged of an error that holds bytes of a request.
func errorKind(err error) string {
	var network *net.OpError
	var tooLarge *fasthttp.ErrSmallBuffer
	switch {
	case errors.As(err, &network):
		return network.Error()
	case errors.As(err, &tooLarge):
		return "the head is too large"
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return "the request ends early"
	}
	return fmt.Sprintf("malformed (%T)", err)
}

// bodyConfig gives a body its own time.
func (s *ListenerServer) bodyConfig(*fasthttp.RequestHeader) fasthttp.RequestConfig {
	return fasthttp.RequestConfig{ReadTimeout: s.opts.Arrivals.Owned}
}

// followConnState follows a connection from one request to the next.
func followConnState(c net.Conn, state fasthttp.ConnState) {
	if h := headConnOf(c); h != nil {
		switch state {
		case fasthttp.StateIdle:
			h.endRequest()
		case fasthttp.StateHijacked:
			h.answeredCtx = nil // the goroutine's that has taken the connection over
		}
	}
	switch state {
	case fasthttp.StateActive:
		clientconn.PacedConnOf(c).SetState(clientconn.StateNew)
	case fasthttp.StateIdle:
		clientconn.PacedConnOf(c).SetState(clientconn.StateIdle)
	}
}

// rejectUnreadable ends a connection on which no request could be read, with the answer that
// net/http, and so upstream, has for that. A client that took too long, or left, gets none.
func rejectUnreadable(ctx *fasthttp.RequestCtx, err error) {
	c := ctx.Conn()
	var tooLarge *fasthttp.ErrSmallBuffer
	var broken net.Error
	switch {
	case errors.As(err, &tooLarge):
		sendLastText(c, "431 Request Header Fields Too Large")
	case errors.As(err, &broken), errors.Is(err, io.ErrUnexpectedEOF):
	default:
		sendLastText(c, "400 Bad Request")
	}
	_ = c.Close() // fasthttp's own words find it closed
}

// sendLastText sends an answer as net/http does of itself, after which it closes the connection.
func sendLastText(c net.Conn, status string) {
	sendLastAnswer(c, "HTTP/1.1 "+status+"\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n"+status)
}

// sendLastStatus sends a Status that ends the connection.
func sendLastStatus(c net.Conn, s *metav1.Status) {
	body := apistatus.Body(s)
	sendLastAnswer(c, fmt.Sprintf(
		"HTTP/1.1 %d %s\r\nAudit-Id: %s\r\nCache-Control: no-cache, private\r\nContent-Type: application/json\r\n"+
			"Content-Length: %d\r\nConnection: close\r\n\r\n%s", s.Code, http.StatusText(int(s.Code)), apistatus.AuditIDFor(""),
		len(body), body))
}

// sendLastAnswer sends an answer for which the client did not wait, and has the client read it.
func sendLastAnswer(c net.Conn, answer string) {
	c = unwrapHeadConn(c)
	_ = c.SetDeadline(time.Now().Add(clientconn.LingerTimeout)) // fails on a closed connection, as what follows will
	if _, err := io.WriteString(c, answer); err == nil {
		clientconn.Linger(c, c)
	}
}
