package passthrough

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"spillway/internal/apistatus"
	"spillway/internal/clientconn"
	"spillway/internal/flowcontrol"
)

// ForwardHTTP2 answers a request on an HTTP/2 stream with upstream's answer. Each has a goroutine
// already, so all of them are streamed. out and r are of one handler, which must return after this
// does: when the whole answer is sent.
func (f *Forwarder) ForwardHTTP2(out *clientconn.PacedWriter, r *http.Request, b SenderIdentity, o AnswerObserver) {
	f.startOnce.Do(f.start)
	if refusal := f.forwardHTTP2(out, r, b, o); refusal != nil {
		refuse(clientconn.NetResponder{Writer: out, RequestFields: r.Header}, o, refusal)
	}
}

// forwardHTTP2 returns the answer to a request that does not go upstream.
func (f *Forwarder) forwardHTTP2(out *clientconn.PacedWriter, r *http.Request, b SenderIdentity,
	o AnswerObserver) *apistatus.Answer {
	in, err := readInboundHTTP2(r)
	if err != nil {
		return apistatus.Failure(apistatus.BadRequest(err.Error()))
	}
	x, refusal := f.begin(in, b, o, clientControl{cut: out.Cut, onDisconnect: onDisconnectOf(r.Context()),
		markProven: out.Prove})
	if refusal != nil {
		return refusal
	}
	defer x.end()
	defer context.AfterFunc(r.Context(), x.cancel)()
	var owned []byte
	var body *clientBody
	switch {
	case in.length == 0:
	case in.isRepeatable(x.class):
		if owned, err = ownBody(out, r, f.Opts.Arrivals.Owned, in.length); err != nil {
			refusal = x.earlyEndAnswer()
			refusal.HangUp = false // the other streams have no part in it
			return refusal
		}
	default:
		body = &clientBody{from: r.Body, setDeadline: out.SetReadDeadline, stop: func() { _ = r.Body.Close() }}
	}
	if refusal := x.acquirePermit(); refusal != nil {
		return refusal
	}
	if body != nil {
		defer body.Close()
		if x.mustArrive() {
			_ = body.setDeadline(time.Now().Add(f.Opts.Arrivals.Passed)) // fails when the stream is gone, as the read will
		}
	}
	x.answerHTTP2(out, x.request(owned), body)
	return nil
}

// answerHTTP2 sends the request of x upstream and answers with what comes.
func (x *exchange) answerHTTP2(out *clientconn.PacedWriter, r *http.Request, body *clientBody) {
	resume := func() {}
	if !x.class.isShort() {
		resume = out.SuspendPace()
	}
	resp, err := x.roundTrip(r, body, func(code int, h http.Header) {
		maps.Copy(out.Header(), h)
		out.WriteHeader(code)
		clear(out.Header())
	})
	if err == nil {
		defer resp.Body.Close()
		defer x.cancel()                                      // a body that was not read to its end is not worth draining
		if resp.StatusCode == http.StatusSwitchingProtocols { // HTTP/2 asks for none
			err = errWrongProtocol
		}
	}
	if err != nil {
		resume()
		x.failureAnswer(err).Write(clientconn.NetResponder{Writer: out, RequestFields: x.in.Header})
		return
	}
	if resp.StatusCode >= http.StatusBadRequest && resp.ContentLength < 0 && len(resp.Trailer) == 0 {
		measure(resp)
	}
	if ends(resp) {
		resume()
	}
	if relay(out, resp) != nil {
		out.Cut() // what was sent must not look complete
	}
}

// relay sends an answer while it comes. Each piece is flushed: the next one may be long in coming.
// An error says that the client did not get all of it.
func relay(out *clientconn.PacedWriter, resp *http.Response) error {
	h := out.Header()
	maps.Copy(h, resp.Header)
	if h["Content-Type"] == nil {
		h["Content-Type"] = nil // else it is guessed
	}
	if len(resp.Trailer) > 0 {
		h.Set("Trailer", strings.Join(slices.Sorted(maps.Keys(resp.Trailer)), ", "))
	}
	out.WriteHeader(resp.StatusCode)
	if resp.ContentLength < 0 {
		if err := out.FlushError(); err != nil {
			return err
		}
	}
	if err := copyAll(flushedWriter{out}, resp.Body); err != nil {
		return err
	}
	maps.Copy(h, resp.Trailer)
	return nil
}

// flushedWriter sends what is written to it at once.
type flushedWriter struct{ *clientconn.PacedWriter }

// Write implements io.Writer.
func (w flushedWriter) Write(b []byte) (int, error) {
	n, err := w.PacedWriter.Write(b)
	if err == nil {
		err = w.FlushError()
	}
	return n, err
}

// onDisconnectOf is the departure of a client whose request's context ends with it.
func onDisconnectOf(ctx context.Context) flowcontrol.OnDisconnect {
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

// ownBody reads a small body, so that the transport can send it again on a fresh connection if the
// pooled one turns out to be dead.
func ownBody(out *clientconn.PacedWriter, r *http.Request, within time.Duration, length int64) ([]byte, error) {
	_ = out.SetReadDeadline(time.Now().Add(within)) // fails when the stream is gone, as the read will
	body := make([]byte, length)
	if _, err := io.ReadFull(r.Body, body); err != nil {
		return nil, fmt.Errorf("reading %d bytes of request body: %w", length, err)
	}
	_ = out.SetReadDeadline(time.Time{})
	return body, nil
}
