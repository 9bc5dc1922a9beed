package passthrough

import (
	"net/http"
	"net/url"
	"strings"

	"spillway/internal/plan"
)

// Inbound is one client request, copied out of its server's buffers. Over HTTP/1.1 (ReadInbound)
// its headers are parsed again from the raw head, as upstream parses them: the server's view drops
// and merges some. Over HTTP/2 they are net/http's.
type Inbound struct {
	method, target, proto string
	Header                http.Header
	length                int64  // of the body in bytes; 0: none, -1: chunked
	peer                  string // the client's IP; empty on a unix socket
	upgrade               string // the protocol asked for, or empty
	path                  apiPath
	query                 string
	passed                bool // the body is sent on while it comes, though it is small: there is no room to own it
}

// class is what a request costs us and upstream. Metrics and logs show it by String.
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

// isShort reports whether the request has one answer, soon.
func (c class) isShort() bool { return c == classRead || c == classWrite }

// class says how the request is counted and limited.
func (in *Inbound) class() class {
	switch {
	case in.upgrade != "" && !upgradesWatch(in.method, in.path, in.query), in.path.isConnect():
		return classConnect
	case in.upgrade != "", isStream(in.path, in.query):
		return classStream
	case in.method == http.MethodGet, in.method == http.MethodHead, in.method == http.MethodOptions:
		return classRead
	}
	return classWrite
}

// isProbe reports whether the request asks for upstream's health: what kube-apiserver's flow schema
// "probes" exempts from all limits.
func (in *Inbound) isProbe() bool {
	if in.method != http.MethodGet {
		return false
	}
	switch path, _, _ := strings.Cut(in.target, "?"); path {
	case "/healthz", "/livez", "/readyz":
		return true
	}
	return false
}

// isRepeatable reports whether a transport may send the request again: there is no body, or it is
// owned, which those of HTTP/1.0 never are.
func (in *Inbound) isRepeatable(c class) bool {
	return in.length == 0 || !in.passed && c.isShort() && in.length > 0 && in.length <= OwnedBodyLimit &&
		in.proto != "HTTP/1.0"
}

// isDirect reports whether the request can take the cheap way: one answer, a body small enough to
// own, and a client that understands chunked answers.
func (in *Inbound) isDirect(c class) bool {
	return c.isShort() && in.proto == "HTTP/1.1" && in.isRepeatable(c)
}

// isWatch reports whether upstream will take the request for a watch.
func isWatch(path apiPath, query string) bool {
	return path.verb == "watch" || queryOption(query, "watch")
}

// isStream reports whether the answer may last: watches and logs. Logs without follow end, but may
// be long in coming.
func isStream(path apiPath, query string) bool {
	return isWatch(path, query) || path.subresource == "log" || queryOption(query, "follow")
}

// upgradesWatch reports that a request for another protocol is a watch (over a WebSocket), and so
// reaches nothing behind the apiserver: a GET of a collection, or of a path that always watches
// (W-25, W-33). Elsewhere upstream does not look at the parameter.
func upgradesWatch(method string, path apiPath, query string) bool {
	if method != http.MethodGet || path.suspect || path.resource == "" || path.subresource != "" {
		return false
	}
	return path.verb == "watch" || path.verb == "" && path.name == "" && !plan.Overfull(query) &&
		queryOption(query, "watch")
}

// queryOption is plan.QueryBool for a raw query; most queries are distinguished without parsing
// them. Of one that upstream may read otherwise, the answer may last.
func queryOption(query, name string) bool {
	if plan.Overfull(query) {
		return true
	}
	if !strings.Contains(query, name) && !strings.Contains(query, "%") {
		return false
	}
	// What cannot be parsed is dropped pair by pair, as upstream does (W-24).
	values, _ := url.ParseQuery(query)
	return plan.QueryBool(values, name)
}
