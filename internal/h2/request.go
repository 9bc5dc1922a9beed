package h2

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/textproto"
	"net/url"
	"strconv"
	"strings"

	"golang.org/x/net/http/httpguts"
	"golang.org/x/net/http2"
)

// serverContext is what the contexts of requests are made of. net/http's reverse proxy breaks an
// answer off by a panic only if there is a server to take it, which it looks for there.
var serverContext = context.WithValue(context.Background(), http.ServerContextKey,
	&http.Server{ReadHeaderTimeout: helloTimeout})

// receiveRequest takes a request, or the trailer of one.
func (c *Conn) receiveRequest(b *block) error {
	c.mu.Lock()
	defer c.unlockAndFlush()
	f := &http2.MetaHeadersFrame{HeadersFrame: &b.headers, Fields: b.fields}
	if c.isIgnoredLocked(b.headers.FrameHeader) {
		return nil
	}
	id := f.StreamID
	if s := c.streams[id]; s != nil {
		b.served = true
		return s.receiveTrailerLocked(b, f)
	}
	if id%2 == 0 || id <= c.lastStreamID {
		return http2.ConnectionError(http2.ErrCodeProtocol)
	}
	c.lastStreamID = id
	if code := c.refusalCodeLocked(b, f); code != http2.ErrCodeNo {
		return http2.StreamError{StreamID: id, Code: code}
	}
	return c.openStreamLocked(b, f)
}

// refusalCodeLocked is why a request gets no stream; ErrCodeNo: it gets one.
func (c *Conn) refusalCodeLocked(b *block, f *http2.MetaHeadersFrame) http2.ErrCode {
	isFull := uint32(len(c.streams)) >= c.opts.MaxStreams // #nosec G115 -- bounded by the options
	switch {
	case isFull && c.unacked == 0:
		return http2.ErrCodeProtocol // the client has acknowledged the limit
	case isFull:
		return http2.ErrCodeRefusedStream
	case f.HasPriority() && f.Priority.StreamDep == f.StreamID:
		return http2.ErrCodeProtocol
	case b.refused && b.isSmall(c.ledger.bounds):
		return http2.ErrCodeRefusedStream
	}
	return http2.ErrCodeNo
}

// openStreamLocked makes the stream of a request, and has its handler run.
func (c *Conn) openStreamLocked(b *block, f *http2.MetaHeadersFrame) error {
	s := &Stream{conn: c, id: f.StreamID, window: int64(c.initialWindow), inflow: inflow{left: int32(c.opts.Window)},
		requestEnded: f.StreamEnded(), exchange: &exchange{}} // #nosec G115 -- bounded by the options
	r, handler, err := c.acceptRequestLocked(s, b, f)
	if err != nil {
		return http2.StreamError{StreamID: s.id, Code: http2.ErrCodeProtocol, Cause: err}
	}
	s.claim, b.claim = b.claim, claim{}
	c.streams[s.id] = s
	if b.served = !b.refused; b.refused && c.isUnprovenLocked() {
		c.goAwayLocked(http2.ErrCodeNo) // the next one would be decoded and refused, too
	}
	c.keepalive.streamsOpened()
	return c.scheduleCallLocked(&call{stream: s, request: r, handler: handler})
}

// acceptRequestLocked makes the request of a head, and finds its handler, which may be one that
// refuses it.
func (c *Conn) acceptRequestLocked(s *Stream, b *block, f *http2.MetaHeadersFrame) (*http.Request, http.Handler,
	error) {
	bounds := c.ledger.bounds
	switch {
	case b.oversized, b.refused && bounds.Refuse == nil:
		return c.requestWithoutHead(s, b), http.HandlerFunc(sendTooLarge), nil
	case b.refused:
		return c.requestWithoutHead(s, b), bounds.Refuse, nil
	}
	r, err := c.newRequest(s, f)
	if err != nil {
		return nil, nil, err
	}
	if bounds != nil && b.claim.large && !c.ledger.proven && !bounds.Credentials(r) {
		s.cancel(errDone)
		c.ledger.free(&b.claim)
		b.refused = true
		return c.requestWithoutHead(s, b), bounds.Refuse, nil
	}
	joinCookies(r)
	if err := forbiddenHeader(r.Header); err != nil {
		return r, sendBadRequest(err), nil
	}
	return r, c.opts.Handler, nil
}

// requestWithoutHead is a request whose head was not taken, for the handler that refuses it.
func (c *Conn) requestWithoutHead(s *Stream, b *block) *http.Request {
	r := &http.Request{
		Method: http.MethodGet, URL: &url.URL{Path: "/"}, RequestURI: "/", Host: "localhost",
		Proto: "HTTP/2.0", ProtoMajor: 2, Header: http.Header{}, RemoteAddr: c.remote, TLS: c.tlsState(), Body: http.NoBody,
	}
	if len(b.fields) > 0 && b.fields[0].Name == ":method" && b.fields[0].Value == http.MethodHead {
		r.Method = http.MethodHead
	}
	if !s.requestEnded {
		s.body = newBody(s, -1, false)
		r.Body = s.body
	}
	ctx, cancel := context.WithCancelCause(serverContext)
	s.cancel = cancel
	return r.WithContext(ctx)
}

// joinCookies makes one field of a request's cookies (RFC 9113, section 8.2.3).
func joinCookies(r *http.Request) {
	if cookies := r.Header["Cookie"]; len(cookies) > 1 {
		r.Header["Cookie"] = []string{strings.Join(cookies, "; ")}
	}
}

func sendTooLarge(w http.ResponseWriter, _ *http.Request) {
	w.WriteHeader(http.StatusRequestHeaderFieldsTooLarge)
	_, _ = w.Write([]byte("<h1>HTTP Error 431</h1><p>Request Header Field(s) Too Large</p>"))
}

func sendBadRequest(err error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, err.Error(), http.StatusBadRequest)
	})
}

// forbiddenHeader refuses what is about a connection (RFC 9113, section 8.2.2).
func forbiddenHeader(h http.Header) error {
	for _, key := range []string{"Connection", "Keep-Alive", "Proxy-Connection", "Transfer-Encoding", "Upgrade"} {
		if _, found := h[key]; found {
			return fmt.Errorf("request header %q is not valid in HTTP/2", key)
		}
	}
	if te := h["Te"]; len(te) > 1 || len(te) == 1 && te[0] != "trailers" && te[0] != "" {
		return errors.New(`request header "TE" may only be "trailers" in HTTP/2`)
	}
	return nil
}

// newRequest makes the request that a head is, whose fields are valid each by itself.
func (c *Conn) newRequest(s *Stream, f *http2.MetaHeadersFrame) (*http.Request, error) {
	r := &http.Request{
		Method: f.PseudoValue("method"), Host: f.PseudoValue("authority"), RequestURI: f.PseudoValue("path"),
		Proto: "HTTP/2.0", ProtoMajor: 2, Header: make(http.Header, len(f.Fields)), RemoteAddr: c.remote,
	}
	scheme := f.PseudoValue("scheme")
	for _, field := range f.RegularFields() {
		r.Header.Add(field.Name, field.Value)
	}
	if err := setTarget(r, scheme, f.PseudoValue("protocol")); err != nil {
		return nil, err
	}
	if scheme == "https" {
		r.TLS = c.tlsState()
	}
	announceTrailers(r)
	expectsContinue := httpguts.HeaderValuesContainsToken(r.Header["Expect"], "100-continue")
	if expectsContinue {
		r.Header.Del("Expect")
	}
	r.Body = http.NoBody
	if !s.requestEnded {
		r.ContentLength = contentLength(r.Header)
		s.body = newBody(s, r.ContentLength, expectsContinue)
		s.body.trailer = r.Trailer
		r.Body = s.body
	}
	ctx, cancel := context.WithCancelCause(serverContext)
	s.cancel = cancel
	return r.WithContext(ctx), nil
}

// setTarget sets where a request goes (RFC 9113, section 8.3.1).
func setTarget(r *http.Request, scheme, protocol string) error {
	switch {
	case protocol != "": // extended CONNECT, which is not offered
		return errors.New("extended CONNECT")
	case r.Method == http.MethodConnect:
		if r.RequestURI != "" || scheme != "" || r.Host == "" {
			return errors.New("a CONNECT with more than an authority")
		}
	case r.Method == "" || scheme != "https" && scheme != "http":
		return errors.New("no method or scheme")
	}
	switch hosts := r.Header["Host"]; {
	case len(hosts) > 1:
		return errors.New("more than one host")
	case len(hosts) == 1 && r.Host == "":
		r.Host = hosts[0]
	case len(hosts) == 1 && hosts[0] != r.Host:
		return errors.New("two different hosts")
	}
	r.Header.Del("Host")
	if strings.Contains(r.Host, "@") || !httpguts.ValidHostHeader(r.Host) {
		return errors.New("an invalid authority")
	}
	if r.Method == http.MethodConnect {
		r.URL, r.RequestURI = &url.URL{Host: r.Host}, r.Host // as over HTTP/1.1
		return nil
	}
	if !strings.HasPrefix(r.RequestURI, "/") && r.RequestURI != "*" {
		return errors.New("an invalid path")
	}
	var err error
	r.URL, err = url.ParseRequestURI(r.RequestURI)
	return err
}

// announceTrailers gives a request's trailer the keys that its head announces.
func announceTrailers(r *http.Request) {
	for _, line := range r.Header["Trailer"] {
		for key := range strings.SplitSeq(line, ",") {
			switch key = textproto.CanonicalMIMEHeaderKey(textproto.TrimString(key)); key {
			case "Transfer-Encoding", "Trailer", "Content-Length", "":
			default:
				if r.Trailer == nil {
					r.Trailer = http.Header{}
				}
				r.Trailer[key] = nil
			}
		}
	}
	r.Header.Del("Trailer")
}

// contentLength is the length that a head announces; -1: it announces none.
func contentLength(h http.Header) int64 {
	values, found := h["Content-Length"]
	if !found {
		return -1
	}
	n, err := strconv.ParseUint(values[0], 10, 63)
	if err != nil {
		return 0
	}
	return int64(n)
}

// receiveTrailerLocked takes the trailer of a request, which ends it.
func (s *Stream) receiveTrailerLocked(b *block, f *http2.MetaHeadersFrame) error {
	switch {
	case b.oversized || b.refused:
		return http2.StreamError{StreamID: s.id, Code: http2.ErrCodeEnhanceYourCalm}
	case s.requestEnded:
		return http2.StreamError{StreamID: s.id, Code: http2.ErrCodeStreamClosed}
	case s.trailing:
		return http2.ConnectionError(http2.ErrCodeProtocol)
	}
	s.trailing = true
	if !f.StreamEnded() || len(f.PseudoFields()) > 0 {
		return http2.StreamError{StreamID: s.id, Code: http2.ErrCodeProtocol}
	}
	trailer := http.Header{}
	if s.body.trailer != nil {
		for _, field := range f.RegularFields() {
			key := http.CanonicalHeaderKey(field.Name)
			if !httpguts.ValidTrailerHeader(key) {
				return http2.StreamError{StreamID: s.id, Code: http2.ErrCodeProtocol}
			}
			trailer[key] = append(trailer[key], field.Value)
		}
		s.conn.ledger.adopt(&s.claim, &b.claim)
	}
	s.completeRequestLocked(trailer)
	return nil
}

// completeRequestLocked follows the end of a request. Its trailer is shown once the body has been
// read to its end.
func (s *Stream) completeRequestLocked(trailer http.Header) {
	s.requestEnded = true
	s.body.end(trailer)
	s.releaseExchangeLocked()
}

// receiveDataLocked takes a piece of a request's body.
func (c *Conn) receiveDataLocked(f *http2.DataFrame) error {
	if c.isIdleStreamLocked(f.StreamID) {
		return http2.ConnectionError(http2.ErrCodeProtocol)
	}
	if !c.inflow.takeWindow(f.Length) {
		return http2.ConnectionError(http2.ErrCodeFlowControl)
	}
	s, data := c.streams[f.StreamID], f.Data()
	refusal := http2.ErrCodeNo
	switch {
	case s == nil || s.requestEnded || s.trailing:
		refusal = http2.ErrCodeStreamClosed
	case s.body.isOverLength(len(data)):
		s.body.fail(errors.New("the request body is longer than announced"))
		refusal = http2.ErrCodeProtocol
	case c.isBodyOverLimitLocked(s):
		refusal = http2.ErrCodeRefusedStream
	case !s.inflow.takeWindow(f.Length):
		refusal = http2.ErrCodeFlowControl
	}
	if refusal != http2.ErrCodeNo {
		c.creditConnLocked(int(f.Length))
		return http2.StreamError{StreamID: f.StreamID, Code: refusal}
	}
	if s.body.receive(data) {
		padding := int(f.Length) - len(data)
		c.creditConnLocked(padding)
		c.creditStreamLocked(s, padding)
	} else {
		c.creditConnLocked(int(f.Length))
	}
	if f.StreamEnded() {
		s.completeRequestLocked(nil)
	}
	return nil
}
