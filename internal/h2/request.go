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
	if c.isIgnored(b.headers.FrameHeader) {
		return nil
	}
	id := f.StreamID
	if id%2 == 0 {
		return http2.ConnectionError(http2.ErrCodeProtocol)
	}
	if s := c.streams[id]; s != nil {
		b.served = true
		return s.receiveTrailer(b, f)
	}
	if id <= c.lastStreamID {
		return http2.ConnectionError(http2.ErrCodeProtocol)
	}
	c.lastStreamID = id
	if uint32(len(c.streams)) >= c.opts.MaxStreams { // #nosec G115 -- bounded by the options
		code := http2.ErrCodeRefusedStream
		if c.unacked == 0 {
			code = http2.ErrCodeProtocol // it knows better
		}
		return http2.StreamError{StreamID: id, Code: code}
	}
	if f.HasPriority() && f.Priority.StreamDep == id {
		return http2.StreamError{StreamID: id, Code: http2.ErrCodeProtocol}
	}
	if b.refused && b.isSmall(c.ledger.bounds) {
		return http2.StreamError{StreamID: id, Code: http2.ErrCodeRefusedStream}
	}
	s := &Stream{conn: c, id: id, window: int64(c.initialWindow), inflow: inflow{left: int32(c.opts.Window)},
		requestEnded: f.StreamEnded(), exchange: &exchange{}} // #nosec G115 -- bounded by the options
	r, handler, err := c.acceptRequest(s, b, f)
	if err != nil {
		return http2.StreamError{StreamID: id, Code: http2.ErrCodeProtocol, Cause: err}
	}
	s.claim, b.claim = b.claim, claim{}
	c.streams[id] = s
	if b.served = !b.refused; b.refused && c.isUnproven() {
		c.goAwayLocked(http2.ErrCodeNo) // the next one would be decoded and refused, too
	}
	c.keepalive.streamsOpened()
	return c.scheduleCall(&call{stream: s, request: r, handler: handler})
}

// acceptRequest makes the request of a head, and finds its handler.
func (c *Conn) acceptRequest(s *Stream, b *block, f *http2.MetaHeadersFrame) (*http.Request, http.Handler, error) {
	if b.oversized || b.refused {
		return c.requestWithoutHead(s, b), c.refusalHandler(b), nil
	}
	r, err := c.newRequest(s, f)
	if err != nil {
		return nil, nil, err
	}
	if bounds := c.ledger.bounds; bounds != nil && b.claim.large && !c.ledger.proven && !bounds.Credentials(r) {
		s.cancel(errDone)
		c.ledger.free(&b.claim)
		b.refused = true
		return c.requestWithoutHead(s, b), bounds.Refuse, nil
	}
	joinCookies(r)
	if err := forbiddenHeader(r.Header); err != nil {
		return r, badRequest(err), nil
	}
	return r, c.opts.Handler, nil
}

// requestWithoutHead is a request whose head was not taken, for the handler that refuses it.
func (c *Conn) requestWithoutHead(s *Stream, b *block) *http.Request {
	r := &http.Request{
		Method: http.MethodGet, URL: &url.URL{Path: "/"}, RequestURI: "/", Host: "localhost",
		Proto: "HTTP/2.0", ProtoMajor: 2, Header: http.Header{}, RemoteAddr: c.remote, TLS: c.state(), Body: http.NoBody,
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

func tooLarge(w http.ResponseWriter, _ *http.Request) {
	w.WriteHeader(http.StatusRequestHeaderFieldsTooLarge)
	_, _ = w.Write([]byte("<h1>HTTP Error 431</h1><p>Request Header Field(s) Too Large</p>"))
}

func badRequest(err error) http.Handler {
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

// newRequest makes the request that a head is. The framer has refused what is malformed in itself.
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
		r.TLS = c.state()
	}
	announceTrailers(r)
	proceed := httpguts.HeaderValuesContainsToken(r.Header["Expect"], "100-continue")
	if proceed {
		r.Header.Del("Expect")
	}
	r.Body = http.NoBody
	if !s.requestEnded {
		r.ContentLength = contentLength(r.Header)
		s.body = newBody(s, r.ContentLength, proceed)
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

// announceTrailers makes room for the trailer that is announceTrailers.
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

// receiveTrailer takes the trailer of a request, which ends it.
func (s *Stream) receiveTrailer(b *block, f *http2.MetaHeadersFrame) error {
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
	s.completeRequest(trailer)
	return nil
}

// completeRequest follows the end of a request. Its trailer is shown once the body has been read to
// its end.
func (s *Stream) completeRequest(trailer http.Header) {
	s.requestEnded = true
	s.body.end(trailer)
	s.releaseExchange()
}

// receiveData takes a piece of a request's body. Called with mu held.
func (c *Conn) receiveData(f *http2.DataFrame) error {
	if c.isIdleStream(f.StreamID) {
		return http2.ConnectionError(http2.ErrCodeProtocol)
	}
	s, data := c.streams[f.StreamID], f.Data()
	if s == nil || s.requestEnded || s.trailing {
		if err := c.discardData(f); err != nil {
			return err
		}
		return http2.StreamError{StreamID: f.StreamID, Code: http2.ErrCodeStreamClosed}
	}
	if s.body.isOverLength(len(data)) {
		if err := c.discardData(f); err != nil {
			return err
		}
		s.body.fail(errors.New("the request body is longer than announced"))
		return http2.StreamError{StreamID: f.StreamID, Code: http2.ErrCodeProtocol}
	}
	if c.isBodyOverLimit(s, f.Length) {
		if err := c.discardData(f); err != nil {
			return err
		}
		return http2.StreamError{StreamID: f.StreamID, Code: http2.ErrCodeRefusedStream}
	}
	if !s.inflow.takeWindow(f.Length) {
		if err := c.discardData(f); err != nil {
			return err
		}
		return http2.StreamError{StreamID: f.StreamID, Code: http2.ErrCodeFlowControl}
	}
	if !c.inflow.takeWindow(f.Length) {
		return http2.ConnectionError(http2.ErrCodeFlowControl)
	}
	if s.body.putData(data) {
		padding := int(f.Length) - len(data)
		c.creditFlow(nil, padding)
		c.creditFlow(s, padding)
	} else {
		c.creditFlow(nil, int(f.Length))
	}
	if f.StreamEnded() {
		s.completeRequest(nil)
	}
	return nil
}
