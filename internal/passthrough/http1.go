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

// HTTP1Request is an HTTP/1.1 request as the server has it that read it. One goroutine uses it.
type HTTP1Request interface {
	// AnswerWithin is where the request is answered. The client must take the answer at no less than a
	// pace; 0: at any pace.
	AnswerWithin(stall time.Duration) apistatus.Responder
	// Head is the head of the request. Its raw headers are the server's, and valid until the request
	// ends.
	Head() RawHead
	// Conn is the client's connection. It is the server's until the request is hijacked.
	Conn() net.Conn
	// Body is all of a body of so many bytes.
	Body(length int64) ([]byte, error)
	// BodyStart is at least as much of a body of so many bytes as the server has read.
	BodyStart(length int64) ([]byte, error)
	// Relay answers with upstream's status and headers. Without a body that is all.
	Relay(resp *http.Response)
	// RelayBody has body be the answer's, of size bytes, or chunked if it is negative: then the head
	// is sent at once. The client must take a first part of it within stall. The server closes it.
	RelayBody(body RelayedBody, size int64, stall time.Duration)
	// Hijack takes the connection from the server. Exactly one of the functions is called: take, by a
	// goroutine of its own, or lost, if the connection is closed first. in reads the connection, with
	// what the server has read of it ahead.
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
	Length                int    // of the body, as the server read it: -1 chunked, -2 to the connection's end
	Remote                net.Addr
}

// Forward answers the request with upstream's answer. The caller has already decided that the
// request may go upstream, as b says. It returns when the answer's head is known (short requests)
// or once the request has its turn (those that are streamed: their connection is then no longer the
// server's).
func (f *Forwarder) Forward(r HTTP1Request, b SenderIdentity, o AnswerObserver) {
	f.startOnce.Do(f.start)
	if refusal := f.forward(r, b, o); refusal != nil {
		refuse(r.AnswerWithin(f.Opts.StallTimeout), o, refusal)
	}
}

// forward returns the answer to a request that does not go upstream.
func (f *Forwarder) forward(r HTTP1Request, b SenderIdentity, o AnswerObserver) (refusal *apistatus.Answer) {
	in, err := ReadInbound(r.Head())
	if err != nil {
		return apistatus.Malformed(err.Error())
	}
	conn := r.Conn()
	x, refusal := f.begin(in, b, o, clientControl{
		cut:          func() { _ = conn.Close() },
		onDisconnect: func(gone func()) (stop func()) { return f.poller.Watch(conn, gone).Stop },
		markProven:   clientconn.PacedConnOf(conn).MarkProven,
	})
	if refusal != nil {
		return refusal
	}
	x.conn = conn
	if in.isDirect(x.class) {
		body, err := readBody(r, x)
		if err != nil {
			return x.earlyEndAnswer()
		}
		if refusal = x.acquirePermit(); refusal == nil {
			f.forwardDirect(r, x, body)
		}
		return refusal
	}
	if in.length == 0 || x.isProven {
		refusal = x.acquirePermit()
	} else {
		x.readWithin(func() { refusal = x.acquirePermit() })
	}
	if refusal != nil {
		return refusal
	}
	return f.takeOver(r, x)
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
	header, err := textproto.NewReader(bufio.NewReaderSize(bytes.NewReader(h.Fields), len(h.Fields)+1)).ReadMIMEHeader()
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, errors.New("malformed header")
	}
	in.Header = http.Header(header)
	if in.length, err = bodyLength(in.Header, h.Length); err != nil {
		return nil, err
	}
	if addr, ok := h.Remote.(*net.TCPAddr); ok {
		in.peer = addr.IP.String()
	}
	in.upgrade = upgradeProtocol(in.Header)
	path, query, _ := strings.Cut(in.target, "?")
	in.path, in.query = parseAPIPath(path), query
	return in, nil
}

// bodyLength is the length of the body in bytes, -1 for chunked. parsed is the server's result,
// which has already refused duplicate, signed and unknown framing; it lets both framings at once
// pass, and spaces inside header names.
func bodyLength(h http.Header, parsed int) (int64, error) {
	for key := range h {
		if strings.Contains(key, " ") {
			return 0, errors.New("invalid header name")
		}
	}
	_, sized := h["Content-Length"]
	_, coded := h["Transfer-Encoding"]
	switch {
	case sized && coded:
		return 0, errors.New("both Content-Length and Transfer-Encoding")
	case coded && parsed != -1:
		return 0, errors.New("unsupported transfer encoding")
	case parsed == -2:
		return 0, nil
	}
	return int64(parsed), nil
}
