package identity

import (
	"fmt"
	"strings"
)

// claim is a header that names a user.
type claim struct{ name, value string }

// shape is a way to send a header.
type shape struct {
	name string
	// write returns the header lines, and what comes as a trailer. other is a second value.
	write func(c claim, other string) (lines []string, trailer string)
	// http2: it can be said in HTTP/2, too, where names are in lower case, folds do not exist, and
	// Connection is an error.
	http2 bool
}

var shapes = []shape{
	{"absent", func(claim, string) ([]string, string) { return nil, "" }, true},
	{"present", func(c claim, _ string) ([]string, string) { return []string{c.name + ": " + c.value}, "" }, true},
	{"in capitals", func(c claim, _ string) ([]string, string) {
		return []string{strings.ToUpper(c.name) + ": " + c.value}, ""
	}, false},
	{"duplicated", func(c claim, other string) ([]string, string) {
		return []string{c.name + ": " + c.value, c.name + ": " + other}, ""
	}, true},
	{"duplicated, the other first", func(c claim, other string) ([]string, string) {
		return []string{c.name + ": " + other, c.name + ": " + c.value}, ""
	}, true},
	{"named in Connection", func(c claim, _ string) ([]string, string) {
		return []string{c.name + ": " + c.value, "Connection: " + c.name}, ""
	}, false},
	{"named in Connection, in other letters", func(c claim, _ string) ([]string, string) {
		return []string{"Connection: keep-alive , " + strings.ToUpper(c.name), c.name + ": " + c.value}, ""
	}, false},
	{"folded", func(c claim, _ string) ([]string, string) { return []string{c.name + ":\r\n " + c.value}, "" }, false},
	{"folded into another", func(c claim, _ string) ([]string, string) {
		return []string{"X-Other: x\r\n " + c.name + ": " + c.value}, ""
	}, false},
	{"in a trailer", func(c claim, _ string) ([]string, string) {
		return []string{"Trailer: " + c.name}, c.name + ": " + c.value
	}, false},
	{"with underscores", func(c claim, _ string) ([]string, string) {
		if !strings.Contains(c.name, "-") {
			c.name = "_" + c.name + "_"
		}
		return []string{strings.ReplaceAll(c.name, "-", "_") + ": " + c.value}, ""
	}, true},
	{"with a blank in front of the colon", func(c claim, _ string) ([]string, string) {
		return []string{c.name + " : " + c.value}, ""
	}, false},
	{"empty", func(c claim, _ string) ([]string, string) { return []string{c.name + ":"}, "" }, true},
}

// proxyRoute is a way that requests take through the proxy.
type proxyRoute struct {
	name, method, path string
	lines              []string
	body               string // of a request that has no trailer
	chunked            bool
}

// target holds a mark by which the audit log finds the request.
func (w proxyRoute) target(mark string) string {
	path, query, _ := strings.Cut(w.path, "?")
	return path + "?mark=" + mark + "&" + query
}

const object = `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"made"}}`

var ways = []proxyRoute{
	{name: "direct", method: "GET", path: "/api/v1/namespaces/default/configmaps/a"},
	{name: "direct, a list", method: "GET", path: "/api/v1/namespaces/default/services"},
	{name: "direct, with a body", method: "POST", path: "/api/v1/namespaces/default/configmaps?dryRun=All",
		lines: []string{"Content-Type: application/json"}, body: object},
	{name: "replay, chunked", method: "POST", path: "/api/v1/namespaces/default/configmaps?dryRun=All",
		lines: []string{"Content-Type: application/json"}, body: object, chunked: true},
	{name: "replay, large", method: "POST", path: "/api/v1/namespaces/default/configmaps?dryRun=All",
		lines: []string{"Content-Type: application/json"}, body: large()},
	{name: "replay, a log", method: "GET", path: "/api/v1/namespaces/default/pods/p/log"},
	{name: "upgrade, exec over a WebSocket", method: "GET",
		path: "/api/v1/namespaces/default/pods/p/exec?command=x&stdout=1", lines: []string{
			"Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13",
			"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==", "Sec-WebSocket-Protocol: v5.channel.k8s.io",
		}},
	{name: "upgrade, exec over SPDY", method: "POST", path: "/api/v1/namespaces/default/pods/p/exec?command=x&stdout=1",
		lines: []string{
			"Connection: Upgrade", "Upgrade: SPDY/3.1", "X-Stream-Protocol-Version: v5.channel.k8s.io",
		}},
	{name: "upgrade, a watch over a WebSocket", method: "GET",
		path: "/api/v1/namespaces/default/configmaps?watch=1&timeoutSeconds=1", lines: []string{
			"Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13",
			"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
		}},
	{name: "memory, a list", method: "GET", path: "/api/v1/namespaces/default/configmaps?resourceVersion=0"},
	{name: "memory, a watch", method: "GET",
		path: "/api/v1/namespaces/default/configmaps?resourceVersion=0&watch=1&timeoutSeconds=1"},
}

// large is a body that is not read into memory before it is sent on.
func large() string {
	return fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"made"},"data":{"x":%q}}`,
		strings.Repeat("x", 1200<<10))
}

// request is what goes over the wire: own is the client's credentials, shaped is what is tried.
func (w proxyRoute) request(host, mark string, own, shaped []string, trailer string) []byte {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s HTTP/1.1\r\nHost: %s\r\nUser-Agent: identity\r\n", w.method, w.target(mark), host)
	for _, lines := range [][]string{w.lines, own, shaped} {
		for _, line := range lines {
			b.WriteString(line + "\r\n")
		}
	}
	switch {
	case w.chunked || trailer != "":
		b.WriteString("Transfer-Encoding: chunked\r\n\r\n")
		if w.body != "" {
			fmt.Fprintf(&b, "%x\r\n%s\r\n", len(w.body), w.body)
		}
		b.WriteString("0\r\n")
		if trailer != "" {
			b.WriteString(trailer + "\r\n")
		}
		b.WriteString("\r\n")
	case w.body != "":
		fmt.Fprintf(&b, "Content-Length: %d\r\n\r\n%s", len(w.body), w.body)
	default:
		b.WriteString("\r\n")
	}
	return []byte(b.String())
}
