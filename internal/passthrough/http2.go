package passthrough

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"spillway/internal/apistatus"
	"spillway/internal/clientconn"
	"spillway/internal/flowcontrol"
)

// ForwardHTTP2 answers a request on an HTTP/2 stream with upstream's answer. Each has a goroutine
// already and streams both ways, so all of them take net/http's proxy; what goes upstream is
// decided by the code that decides it for HTTP/1.1. out and r are of one handler, which must return
// after this does: when the whole answer is sent.
func (f *Forwarder) ForwardHTTP2(out *clientconn.PacedWriter, r *http.Request, b Bearer, h AnswerHooks) {
	f.starts.Do(f.start)
	w := h.noting(clientconn.NetResponder{Writer: out, RequestFields: r.Header})
	in, err := readInboundHTTP2(r)
	if err != nil {
		apistatus.Write(w, apistatus.BadRequest(err.Error()))
		return
	}
	x := f.begin(w, in, b, clientControl{sever: out.Cut, departs: departsWith(r.Context())})
	if x == nil {
		return
	}
	defer x.end()
	x.body, x.measures = r.Body, true
	x.setHooks(h)
	if in.bearsCredentials() {
		x.known = out.Prove
	}
	if !x.class.short() {
		x.pace = out.SuspendPace()
	}
	if err := ownBody(out, r, x); err != nil {
		apistatus.Write(w, apistatus.BadRequest("the request body ended early"))
		return
	}
	f.replays.handler.ServeHTTP(out, r.WithContext(context.WithValue(r.Context(), exchangeKey{}, x)))
}

// departsWith is the departure of a client whose request's context ends with it.
func departsWith(ctx context.Context) flowcontrol.Departs {
	return func(gone func()) (stop func()) {
		end := context.AfterFunc(ctx, gone)
		return func() { end() }
	}
}

// readInboundHTTP2 is ReadInbound for HTTP/2, where net/http has parsed the head and framing is
// never in doubt.
func readInboundHTTP2(r *http.Request) (*Inbound, error) {
	if !strings.HasPrefix(r.RequestURI, "/") || r.Method == http.MethodConnect {
		return nil, errors.New("the request target must be a path")
	}
	in := &Inbound{method: r.Method, target: r.RequestURI, proto: r.Proto, Header: r.Header, length: r.ContentLength}
	if host, _, err := net.SplitHostPort(r.RemoteAddr); err == nil {
		in.peer = host
	}
	path, query, _ := strings.Cut(in.target, "?")
	in.path, in.query = parseAPIPath(path), query
	return in, nil
}

// ownBody copies a small body, so that the transport can send it again on a fresh connection if the
// pooled one turns out to be dead; larger ones are passed on while they come.
func ownBody(out *clientconn.PacedWriter, r *http.Request, x *exchange) error {
	if x.in.length == 0 || !x.in.repeatable(x.class) {
		return nil
	}
	_ = out.SetReadDeadline(time.Now().Add(x.f.Opts.Arrivals.Owned)) // fails when the stream is gone, as the read will
	body := make([]byte, x.in.length)
	if _, err := io.ReadFull(r.Body, body); err != nil {
		return fmt.Errorf("reading %d bytes of request body: %w", x.in.length, err)
	}
	_ = out.SetReadDeadline(time.Time{})
	r.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
	r.Body, _ = r.GetBody()
	return nil
}
