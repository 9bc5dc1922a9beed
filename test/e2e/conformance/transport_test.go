package conformance

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"spillway/test/framework/exchange"
	"spillway/test/framework/process"
)

// testTransport looks at what lies below requests: connections, protocols, framing (W-1, W-2,
// W-102, W-119).
func (s *suite) testTransport(t *testing.T) {
	for name, test := range map[string]func(*testing.T){
		"protocols": s.testProtocols, "connections outlive watches": s.testReuse, "HTTP 1.0": s.testOldProtocol,
		"the head comes first": s.testHead, "websocket": s.testWebSocket, "header names": s.testHeaderNames,
		"HTTP 2": s.testHTTP2,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t)
		})
	}
}

// dial opens a connection below HTTP.
func (e *endpoint) dial(t *testing.T, protocols ...string) net.Conn {
	t.Helper()
	u, err := url.Parse(e.Base)
	must(t, err)
	dialer := net.Dialer{Timeout: process.Patience}
	c, err := dialer.DialContext(t.Context(), "tcp", u.Host)
	must(t, err)
	t.Cleanup(func() { c.Close() })
	must(t, c.SetDeadline(time.Now().Add(process.Patience)))
	if u.Scheme == "http" {
		return c
	}
	config := e.Client.Transport.(*http.Transport).TLSClientConfig.Clone()
	config.ServerName, config.NextProtos = u.Hostname(), protocols
	secure := tls.Client(c, config)
	must(t, secure.HandshakeContext(t.Context()))
	return secure
}

// ask writes a request as text. Its head ends with the credentials.
func (e *endpoint) ask(t *testing.T, c net.Conn, head ...string) {
	t.Helper()
	u, err := url.Parse(e.Base)
	must(t, err)
	head = append(head, "Host: "+u.Host, "User-Agent: "+exchange.UserAgent)
	if e.Config.BearerToken != "" {
		head = append(head, "Authorization: Bearer "+e.Config.BearerToken)
	}
	_, err = io.WriteString(c, strings.Join(head, "\r\n")+"\r\n\r\n")
	must(t, err)
}

func (s *suite) testProtocols(t *testing.T) {
	var chosen [2]string
	for i, e := range []*endpoint{s.direct, s.secure} {
		c := e.dial(t, "h2", "http/1.1").(*tls.Conn)
		chosen[i] = c.ConnectionState().NegotiatedProtocol
	}
	if chosen != [2]string{"h2", "h2"} {
		t.Fatalf("direct and proxied chose %q", chosen)
	}
	s.show(t, "W-1 W-252", memory)
}

// testReuse ends a watch and sends another request on its connection.
func (s *suite) testReuse(t *testing.T) {
	for _, ending := range []string{"&resourceVersion=0", "&resourceVersion=1", "&resourceVersion=${first}" + marked} {
		for _, e := range s.sides() {
			c := e.dial(t, "http/1.1")
			in := bufio.NewReader(c)
			e.ask(t, c, "GET "+s.fill(c1+"?watch=1&timeoutSeconds=1"+ending)+" HTTP/1.1")
			response, err := http.ReadResponse(in, nil)
			must(t, err)
			if _, err := io.Copy(io.Discard, response.Body); err != nil || response.Close {
				t.Fatalf("%s: %s: the watch ended with %v, closed: %t", e.Name, ending, err, response.Close)
			}
			e.ask(t, c, "GET "+c1+"/a?resourceVersion=0 HTTP/1.1")
			response, err = http.ReadResponse(in, nil)
			must(t, err)
			body, err := io.ReadAll(response.Body)
			must(t, err)
			if response.StatusCode != http.StatusOK || !bytes.HasPrefix(body, []byte(`{"kind":"ConfigMap"`)) {
				t.Errorf("%s: after the watch: %s %s", e.Name, response.Status, body)
			}
		}
		s.show(t, "W-2 W-107 W-112 W-254", memory)
	}
}

// testOldProtocol speaks HTTP/1.0: no chunks, and a body ends with its connection (W-1).
func (s *suite) testOldProtocol(t *testing.T) {
	for _, target := range []string{
		c1 + "/a?resourceVersion=0", c1 + "?resourceVersion=${last}&resourceVersionMatch=Exact", c1 +
			"?watch=1&timeoutSeconds=1&resourceVersion=${first}",
		c1 + "/zz",
	} {
		target = s.fill(target)
		var c *exchange.Comparison
		for attempt := 1; attempt == 1 || c.OutOfTime() && attempt <= patient; attempt++ {
			c = exchange.Compare(s.tally, request{Target: target}, s.direct.inOldProtocol(t, target),
				s.plain.inOldProtocol(t, target))
		}
		for _, problem := range c.Problems {
			t.Errorf("%s\n%s", target, problem)
		}
		s.show(t, "W-1", c.By())
	}
}

// inOldProtocol sends a request over HTTP/1.0.
func (e *endpoint) inOldProtocol(t *testing.T, target string) *answer {
	t.Helper()
	start := time.Now()
	c := e.dial(t, "http/1.1")
	e.ask(t, c, "GET "+target+" HTTP/1.0")
	response, err := http.ReadResponse(bufio.NewReader(c), nil)
	must(t, err)
	a := &answer{Status: response.StatusCode, Header: exchange.WholeHeader(response)}
	a.Header.Set("Protocol", response.Proto)
	a.Header.Del("Connection") // closed either way; saying so is optional
	a.Body, a.Cut = io.ReadAll(response.Body)
	a.Length, a.Took = len(a.Body), time.Since(start)
	return a
}

// testHeaderNames compares the very spelling of the names in heads (W-256), and with it that there
// is none of the server's own (W-251).
func (s *suite) testHeaderNames(t *testing.T) {
	for _, target := range []string{
		c1 + "?resourceVersion=0", c1 + "/a?resourceVersion=0", c1 + "/zz?resourceVersion=0", c1 + "?limit=abc", c1 +
			"?watch=1&timeoutSeconds=1&resourceVersion=0",
		c1 + "?resourceVersion=${future}",
	} {
		var names [2][]string
		for i, e := range []*endpoint{s.direct, s.secure} {
			names[i] = e.headerNames(t, s.fill(target))
		}
		if !slices.Equal(names[0], names[1]) {
			t.Errorf("%s: direct %q, proxied %q", target, names[0], names[1])
		}
		s.show(t, "W-251 W-256", either)
	}
}

// headerNames are the names in the head of an answer as they are spelt, but for those that may
// differ.
func (e *endpoint) headerNames(t *testing.T, target string) []string {
	t.Helper()
	c := e.dial(t, "http/1.1")
	e.ask(t, c, "GET "+target+" HTTP/1.1")
	in := bufio.NewReader(c)
	var names []string
	for {
		line, err := in.ReadString('\n')
		must(t, err)
		name, _, ok := strings.Cut(line, ":")
		switch {
		case line == "\r\n":
			slices.Sort(names)
			return names
		case !ok: // the status line
		case name == "Transfer-Encoding", name == "Content-Length", name == "Connection",
			strings.HasPrefix(name, "X-Kubernetes-Pf-"):
			// DEV-1, DEV-6 and DEV-11, by what is compared elsewhere
		default:
			names = append(names, name)
		}
	}
}

// testHead opens watches that have nothing to say: their heads come all the same (W-102).
func (s *suite) testHead(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), process.Patience)
	defer cancel()
	for _, options := range []string{"&resourceVersion=${future}", "&resourceVersion=${last}", "", informer,
		noState + "&resourceVersion=0"} {
		for _, e := range []*endpoint{s.reference(watcher{query: options}, s.plain), s.plain, s.secure} {
			st, err := e.open(ctx, request{Target: s.fill("/api/v1/namespaces/none/configmaps?watch=1&timeoutSeconds=600" +
				options)})
			if err != nil {
				t.Errorf("%s: %s: %v", e.Name, options, err)
				continue
			}
			st.cancel()
		}
		s.show(t, "W-20 W-102 W-106", memory)
	}
}
