package passthrough

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"
	"net/textproto"
	"strings"
	"time"

	"spillway/internal/apistatus"
	"spillway/internal/clientconn"
	"spillway/internal/flowcontrol"
)

// HTTP1Request is an HTTP/1.1 request at the server that has read it. One goroutine uses it.
type HTTP1Request interface {
	// AnswerWithin answers the request. The client must take something within stall, again and again;
	// 0: at any pace.
	AnswerWithin(stall time.Duration) apistatus.Responder
	// Head is the head of the request. Its raw headers are the server's, and valid until the request
	// ends.
	Head() RawHead
	// Conn is the client's connection. It is the server's until the request is hijacked.
	Conn() net.Conn
	// Body reads the whole body, of length bytes.
	Body(length int64) ([]byte, error)
	// BodyStart reads at least as much of a body of length bytes as the server has taken off the
	// connection.
	BodyStart(length int64) ([]byte, error)
	// Relay answers with upstream's status and headers. Without a body that is all.
	Relay(resp *http.Response)
	// RelayBody has body be the answer's, of size bytes, or chunked if it is negative: then the head
	// is sent at once. The client must take a first part of it within stall. The server closes it.
	RelayBody(body RelayedBody, size int64, stall time.Duration)
	// Hijack takes the connection from the server. Exactly one of the functions is called: take, by a
	// goroutine of its own, or lost, if the connection is closed first. in reads the connection, and
	// first what the server has read ahead.
	Hijack(take func(c net.Conn, in io.Reader), lost func())
	// ShareHead holds the bytes of a large head beyond the answer; nil: the head is not large.
	ShareHead() *flowcontrol.LargeHead
}

// RelayedBody is the body of an answer on its way through.
type RelayedBody interface {
	io.ReadCloser
	io.WriterTo
}

// RawHead is the head of an HTTP/1.1 request.
type RawHead struct {
	Method, Target, Proto string
	Fields                []byte // the header fields as they came
	ContentLength         int64  // as in http.Request: -1 is a body in chunks
	Remote                net.Addr
}

// Forward answers the request with upstream's answer. The caller has already decided that the
// request may go upstream, as sender says. It returns when the head of a short answer is known. A
// request that is streamed it leaves to another goroutine, which takes the connection.
func (f *Forwarder) Forward(r HTTP1Request, sender SenderIdentity, o AnswerObserver) {
	f.startOnce.Do(f.start)
	if refusal := f.forward(r, sender, o); refusal != nil {
		refuse(r.AnswerWithin(f.opts.StallTimeout), o, refusal)
	}
}

// forward returns the answer to a request that does not go upstream.
func (f *Forwarder) forward(r HTTP1Request, sender SenderIdentity, o AnswerObserver) (refusal *apistatus.Answer) {
	in, err := ReadInbound(r.Head())
	if err != nil {
		return apistatus.Malformed(err.Error())
	}
	conn := r.Conn()
	x, refusal := f.begin(in, sender, o, clientControl{
		cut:          func() { _ = conn.Close() },
		onDisconnect: func(gone func()) (stop func()) { return f.poller.Watch(conn, gone).Stop },
		markProven:   clientconn.PacedConnOf(conn).MarkProven,
	})
	if refusal != nil {
		return refusal
	}
	x.conn = conn
	if in.isDirect() {
		return x.forwardDirect(r)
	}
	return x.takeOver(r)
}

// ReadInbound copies the request. It fails for what net/http would refuse to parse and for framing
// that two parsers may read differently; nothing of such a connection may be trusted, so it must be
// closed.
func ReadInbound(h RawHead) (*Inbound, error) {
	in := &Inbound{method: h.Method, target: h.Target, proto: h.Proto}
	if in.proto != "HTTP/1.1" && in.proto != "HTTP/1.0" {
		return nil, errors.New("unsupported protocol version")
	}
	if !strings.HasPrefix(in.target, "/") || in.method == http.MethodConnect {
		return nil, errors.New("the request target must be a path")
	}
	if err := in.readFields(h); err != nil {
		return nil, err
	}
	if addr, ok := h.Remote.(*net.TCPAddr); ok {
		in.peer = addr.IP.String()
	}
	in.upgrade = upgradeProtocol(in.Header)
	in.classify()
	return in, nil
}

// readFields parses the header fields. The server has already refused duplicate, signed and unknown
// framing; it lets both framings at once pass, and spaces inside header names.
func (in *Inbound) readFields(h RawHead) error {
	fields := bufio.NewReaderSize(bytes.NewReader(h.Fields), len(h.Fields)+1)
	header, err := textproto.NewReader(fields).ReadMIMEHeader()
	if err != nil && !errors.Is(err, io.EOF) {
		return errors.New("malformed header")
	}
	for key := range header {
		if strings.Contains(key, " ") {
			return errors.New("invalid header name")
		}
	}
	_, sized := header["Content-Length"]
	_, coded := header["Transfer-Encoding"]
	switch {
	case sized && coded:
		return errors.New("both Content-Length and Transfer-Encoding")
	case coded && h.ContentLength >= 0:
		return errors.New("unsupported transfer encoding")
	}
	in.Header, in.contentLength = http.Header(header), h.ContentLength
	return nil
}
