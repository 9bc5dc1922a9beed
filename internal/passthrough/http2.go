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

// ForwardHTTP2 answers a request on an HTTP/2 stream with upstream's answer, and returns when the
// whole answer is sent. Each has a goroutine already, its handler's, so all of them are streamed.
func (f *Forwarder) ForwardHTTP2(out *clientconn.PacedWriter, r *http.Request, sender SenderIdentity,
	o AnswerObserver) {
	f.startOnce.Do(f.start)
	if refusal := f.forwardHTTP2(out, r, sender, o); refusal != nil {
		refuse(clientconn.NetResponder{Writer: out, RequestFields: r.Header}, o, refusal)
	}
}

// forwardHTTP2 returns the answer to a request that does not go upstream.
func (f *Forwarder) forwardHTTP2(out *clientconn.PacedWriter, r *http.Request, sender SenderIdentity,
	o AnswerObserver) *apistatus.Answer {
	in, err := readInboundHTTP2(r)
	if err != nil {
		return apistatus.Failure(apistatus.BadRequest(err.Error()))
	}
	x, refusal := f.begin(in, sender, o,
		clientControl{cut: out.Cut, onDisconnect: onDisconnectOf(r.Context()), markProven: out.Prove})
	if refusal != nil {
		return refusal
	}
	defer x.end()
	defer context.AfterFunc(r.Context(), x.cancel)()
	var owned []byte
	if in.body == bodyOwned {
		if owned, err = ownBody(out, r, f.opts.Arrivals.Owned, in.contentLength); err != nil {
			refusal = x.earlyEndAnswer()
			refusal.HangUp = false // the other streams have no part in it
			return refusal
		}
	}
	if refusal := x.awaitPermit(); refusal != nil {
		return refusal
	}
	if in.body == bodyStreamed {
		x.body = &clientBody{from: r.Body, setDeadline: out.SetReadDeadline, stop: func() { _ = r.Body.Close() }}
		defer x.body.Close()
		x.limitArrival()
	}
	x.answerHTTP2(out, x.request(owned))
	return nil
}

// answerHTTP2 sends the request of x upstream and answers with what comes.
func (x *exchange) answerHTTP2(out *clientconn.PacedWriter, r *http.Request) {
	resumePace := func() {}
	if !x.in.class.isShort() {
		resumePace = out.SuspendPace()
	}
	resp, err := x.roundTrip(r, func(code int, h http.Header) {
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
		resumePace()
		x.failureAnswer(err).Write(clientconn.NetResponder{Writer: out, RequestFields: x.in.Header})
		return
	}
	if resp.StatusCode >= http.StatusBadRequest && resp.ContentLength < 0 && len(resp.Trailer) == 0 {
		measureRefusal(resp)
	}
	if endsSoon(resp) {
		resumePace()
	}
	if relay(out, resp) != nil {
		out.Cut() // what was sent must not look complete
	}
}

// relay sends an answer while it arrives. Each piece is flushed, because the next one may take
// long. An error says that the client did not get all of it.
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
	if _, err := copyAll(flushedWriter{out}, resp.Body); err != nil {
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

// onDisconnectOf reports the departure of a client by the context of its request.
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
	in := &Inbound{
		method: r.Method, target: r.RequestURI, proto: r.Proto, Header: r.Header, contentLength: r.ContentLength,
	}
	if host, _, err := net.SplitHostPort(r.RemoteAddr); err == nil {
		in.peer = host
	}
	in.classify()
	return in, nil
}

// ownBody reads a small body, all of which must arrive within a time.
func ownBody(out *clientconn.PacedWriter, r *http.Request, within time.Duration, length int64) ([]byte, error) {
	_ = out.SetReadDeadline(time.Now().Add(within)) // fails when the stream is gone, as the read will
	body := make([]byte, length)
	if _, err := io.ReadFull(r.Body, body); err != nil {
		return nil, fmt.Errorf("reading %d bytes of request body: %w", length, err)
	}
	_ = out.SetReadDeadline(time.Time{})
	return body, nil
}
