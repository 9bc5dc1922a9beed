package serve

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"
	"net/textproto"
	"net/url"
	"strings"

	"github.com/valyala/fasthttp"
)

// inbound is one client request as it came, copied out of fasthttp's buffers. Headers are read from the raw head with
// the parser that upstream itself uses, not from fasthttp's view, which drops and merges some.
type inbound struct {
	method, target, proto string
	header                http.Header
	length                int64  // of the body in bytes; 0: none, -1: chunked
	peer                  string // the client's IP; empty on a unix socket
	upgrade               string // the protocol asked for, or empty
	path                  apiPath
	query                 string
	passed                bool // the body is sent on while it comes, though it is small: there is no room to own it
}

// readInbound copies the request. It fails for what net/http would refuse to parse and for framing that two parsers
// may read differently; nothing of such a connection may be trusted, so it must be closed.
func readInbound(ctx *fasthttp.RequestCtx) (*inbound, error) {
	h := &ctx.Request.Header
	in := &inbound{method: string(h.Method()), target: string(h.RequestURI()), proto: string(h.Protocol())}
	if in.proto != "HTTP/1.1" && in.proto != "HTTP/1.0" {
		return nil, errors.New("unsupported protocol version")
	}
	if !strings.HasPrefix(in.target, "/") || in.method == http.MethodConnect {
		return nil, errors.New("the request target must be a path")
	}
	raw := h.RawHeaders()
	header, err := textproto.NewReader(bufio.NewReaderSize(bytes.NewReader(raw), len(raw)+1)).ReadMIMEHeader()
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, errors.New("malformed header")
	}
	in.header = http.Header(header)
	if in.length, err = bodyLength(in.header, h.ContentLength()); err != nil {
		return nil, err
	}
	if addr, ok := ctx.RemoteAddr().(*net.TCPAddr); ok {
		in.peer = addr.IP.String()
	}
	in.upgrade = upgradeProtocol(in.header)
	path, query, _ := strings.Cut(in.target, "?")
	in.path, in.query = parseAPIPath(path), query
	return in, nil
}

// bodyLength is the length of the body in bytes, -1 for chunked. parsed is fasthttp's result, which has already refused
// duplicate, signed and unknown framing; it lets both framings at once pass, and spaces inside header names.
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

// class is what a request costs us and upstream; the label of metrics.
type class int

const (
	classRead    class = iota // one answer, changes nothing
	classWrite                // one answer, may change something
	classStream               // an answer that may last: watches, logs
	classConnect              // a connection to something behind the apiserver, or another protocol
	classes
)

func (c class) String() string {
	return [classes]string{"read", "write", "watch", "connect"}[c]
}

// short reports whether the request has one answer, soon.
func (c class) short() bool { return c == classRead || c == classWrite }

// class says how the request is counted and limited.
func (in *inbound) class() class {
	switch {
	case in.upgrade != "" && !upgradesWatch(in.method, in.path, in.query), in.path.connect():
		return classConnect
	case in.upgrade != "", streaming(in.path, in.query):
		return classStream
	case in.method == http.MethodGet, in.method == http.MethodHead, in.method == http.MethodOptions:
		return classRead
	}
	return classWrite
}

// probes reports whether the request asks for upstream's health: what kube-apiserver's flow schema "probes" exempts from all limits.
func (in *inbound) probes() bool {
	if in.method != http.MethodGet {
		return false
	}
	switch path, _, _ := strings.Cut(in.target, "?"); path {
	case "/healthz", "/livez", "/readyz":
		return true
	}
	return false
}

// repeatable reports whether a transport may send the request again: there is no body, or it is owned, which those of HTTP/1.0 never are.
func (in *inbound) repeatable(c class) bool {
	return in.length == 0 || !in.passed && c.short() && in.length > 0 && in.length <= ownedBodyMax && in.proto != "HTTP/1.0"
}

// direct reports whether the request can take the cheap way: one answer, a body small enough to own, and a client that
// understands chunked answers.
func (in *inbound) direct(c class) bool {
	return c.short() && in.proto == "HTTP/1.1" && in.repeatable(c)
}

// watching reports whether upstream will take the request for a watch.
func watching(path apiPath, query string) bool {
	return path.verb == "watch" || queryOption(query, "watch")
}

// streaming reports whether the answer may last: watches and logs. Logs without follow end, but may be long in coming.
func streaming(path apiPath, query string) bool {
	return watching(path, query) || path.subresource == "log" || queryOption(query, "follow")
}

// upgradesWatch reports that a request for another protocol is a watch (over a WebSocket), and so
// reaches nothing behind the apiserver: a GET of a collection, or of a path that always watches
// (W-25, W-33). Elsewhere upstream does not look at the parameter.
func upgradesWatch(method string, path apiPath, query string) bool {
	if method != http.MethodGet || path.suspect || path.resource == "" || path.subresource != "" {
		return false
	}
	return path.verb == "watch" || path.verb == "" && path.name == "" && !overfull(query) && queryOption(query, "watch")
}

// queryOption is queryTrue for a raw query; most queries are distinguished without parsing them. Of
// one that upstream may read otherwise, the answer may last.
func queryOption(query, name string) bool {
	if overfull(query) {
		return true
	}
	if !strings.Contains(query, name) && !strings.Contains(query, "%") {
		return false
	}
	// What cannot be parsed is dropped pair by pair, as upstream does (W-24).
	values, _ := url.ParseQuery(query)
	return queryTrue(values, name)
}
