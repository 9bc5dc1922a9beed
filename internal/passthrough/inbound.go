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
	contentLength         int64  // as in http.Request: -1 is a body in chunks
	peer                  string // the client's IP; empty on a unix socket
	upgrade               string // the protocol that is requested, or empty

	// Set by classify.
	rawPath, query string // of the target, as they were sent
	path           apiPath
	class          class
	body           bodyMode
}

// class is what a request costs the proxy and upstream. Metrics and logs show it by String.
type class int

const (
	classRead    class = iota // one answer, changes nothing
	classWrite                // one answer, may change something
	classStream               // an answer that may last: watches, logs
	classConnect              // a connection to something behind the API server, or another protocol
	classes
)

func (c class) String() string {
	return [classes]string{"read", "write", "watch", "connect"}[c]
}

// isShort reports whether the request has one answer, soon.
func (c class) isShort() bool { return c == classRead || c == classWrite }

// bodyMode is how the body of a request travels.
type bodyMode int

const (
	bodyNone     bodyMode = iota // there is none
	bodyOwned                    // it is copied first, so that a transport can send the request again
	bodyStreamed                 // it is sent on while it arrives
)

// classify derives from the rest of the request what the way upstream depends on.
func (in *Inbound) classify() {
	in.rawPath, in.query, _ = strings.Cut(in.target, "?")
	in.path = parseAPIPath(in.rawPath)
	in.class = in.findClass()
	in.body = in.chooseBodyMode()
}

func (in *Inbound) findClass() class {
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

// chooseBodyMode lets a short request own a body of known length, if it is small. Those of HTTP/1.0
// are streamed.
func (in *Inbound) chooseBodyMode() bodyMode {
	switch {
	case in.contentLength == 0:
		return bodyNone
	case in.class.isShort() && in.contentLength > 0 && in.contentLength <= OwnedBodyLimit && in.proto != "HTTP/1.0":
		return bodyOwned
	}
	return bodyStreamed
}

// isProbe reports whether the request is for upstream's health: kube-apiserver's flow schema
// "probes" exempts these from all limits.
func (in *Inbound) isProbe() bool {
	if in.method != http.MethodGet {
		return false
	}
	return in.rawPath == "/healthz" || in.rawPath == "/livez" || in.rawPath == "/readyz"
}

// isDirect reports whether the request can take the cheap way: one answer, a body that is owned,
// and a client that understands chunked answers.
func (in *Inbound) isDirect() bool {
	return in.class.isShort() && in.proto == "HTTP/1.1" && in.body != bodyStreamed
}

// isWatch reports whether upstream will take the request for a watch.
func (in *Inbound) isWatch() bool { return in.class == classStream && readsAsWatch(in.path, in.query) }

func readsAsWatch(path apiPath, query string) bool {
	return path.verb == "watch" || hasQueryOption(query, "watch")
}

// isStream reports whether the answer may last: watches and logs. Logs without follow end, but may
// take long to come.
func isStream(path apiPath, query string) bool {
	return readsAsWatch(path, query) || path.subresource == "log" || hasQueryOption(query, "follow")
}

// upgradesWatch reports that a request for another protocol is a watch (over a WebSocket), and so
// reaches nothing behind the API server: a GET of a collection, or of a path that always watches
// (W-25, W-33). For others upstream ignores the parameter.
func upgradesWatch(method string, path apiPath, query string) bool {
	if method != http.MethodGet || path.isSuspect || path.resource == "" || path.subresource != "" {
		return false
	}
	return path.verb == "watch" || path.verb == "" && path.name == "" && !plan.IsOverfull(query) &&
		hasQueryOption(query, "watch")
}

// hasQueryOption is plan.QueryBool for a raw query, and true for one that two parties may read
// differently: the answer may last. Most queries need not be parsed.
func hasQueryOption(query, name string) bool {
	if plan.IsOverfull(query) {
		return true
	}
	if !strings.Contains(query, name) && !strings.Contains(query, "%") {
		return false
	}
	// What cannot be parsed is dropped pair by pair, as upstream does (W-24).
	values, _ := url.ParseQuery(query)
	return plan.QueryBool(values, name)
}
