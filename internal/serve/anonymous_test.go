package serve

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	authenticationv1 "k8s.io/api/authentication/v1"

	"spillway/internal/fakeapiserver"
	"spillway/internal/object"
	"spillway/internal/passthrough"
)

// ask sends a GET on a stream, with a token if that is not empty.
func (r *rawHTTP2) ask(id uint32, path, token string) {
	r.t.Helper()
	if token == "" {
		r.send(id, "GET", path)
		return
	}
	r.send(id, "GET", path, "authorization", "Bearer "+token)
}

// send sends a request without a body on a stream, with header fields: name, value and so on.
func (r *rawHTTP2) send(id uint32, method, path string, fields ...string) {
	r.t.Helper()
	var block bytes.Buffer
	enc := hpack.NewEncoder(&block)
	fields = append([]string{":method", method, ":scheme", "https", ":authority", "localhost", ":path", path}, fields...)
	for i := 0; i < len(fields); i += 2 {
		r.check(enc.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1], Sensitive: true}))
	}
	r.check(r.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block.Bytes(), EndHeaders: true,
		EndStream: true}))
}

// quiet reads on to the answer to a ping, and returns what came before it.
func (r *rawHTTP2) quiet() []string {
	r.t.Helper()
	r.check(r.framer.WritePing(false, [8]byte{1}))
	return r.until("PING", 0)
}

// ends reads on to the end of the connection, and returns what came before it, but for the end of
// an answer in a frame of its own.
func (r *rawHTTP2) ends() (all []string) {
	for {
		frame, err := r.framer.ReadFrame()
		if err != nil {
			return all
		}
		if data, ok := frame.(*http2.DataFrame); ok && len(data.Data()) == 0 && data.StreamEnded() {
			continue
		}
		all = append(all, frame.Header().Type.String())
	}
}

// knows is a rig that reviews tokens; "good" is a user's.
func knows(t *testing.T, o rigOptions) *rig {
	t.Helper()
	up := fakeapiserver.New(fakeapiserver.Options{ProofDelay: 10 * time.Millisecond})
	o.access, o.mirrors = true, []*object.Resource{configMaps}
	r := rigOf(t, up, o)
	r.reviews.Know("good", authenticationv1.UserInfo{Username: "good"})
	return r
}

// With its answer to an anonymous request the connection sends GOAWAY, as upstream's does (W-1),
// and ends once the requests that are under way are answered. A connection whose requests are a
// user's goes on.
func TestUnauthenticatedConnectionsEndWithGoAway(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		token   string
		code    int
		goodbye bool
	}{
		"anonymous, answered":            {"", http.StatusOK, true},
		"anonymous, refused":             {"", http.StatusForbidden, true},
		"a token that upstream refuses":  {"nobody's", http.StatusUnauthorized, true},
		"a token that is known":          {"good", http.StatusOK, false},
		"a token that is known, refused": {"good", http.StatusForbidden, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := knows(t, rigOptions{})
			gate, slow := make(chan struct{}), make(chan struct{})
			open := sync.OnceFunc(func() { close(gate) })
			t.Cleanup(open) // before the rig's
			r.up.Handle("/slow", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				close(slow)
				<-gate
				fmt.Fprint(w, "slow")
			}))
			r.up.Handle("/answer", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(c.code) }))
			raw := dialHTTP2(t, r, nil)
			raw.settings()
			raw.ask(1, "/slow", c.token)
			<-slow
			raw.ask(3, "/answer", c.token)
			before := fmt.Sprint(raw.until("HEADERS", 3), raw.quiet())
			if strings.Contains(before, "GOAWAY") != c.goodbye {
				t.Errorf("before the answer came %s", before)
			}
			open()
			raw.until("DATA 1 slow", 0)
			if c.goodbye {
				if rest := raw.ends(); len(rest) > 0 {
					t.Errorf("after the last answer came %q", rest)
				}
				return
			}
			raw.ask(5, "/answer", c.token)
			if got := raw.until("HEADERS", 5); strings.Contains(fmt.Sprint(got), "GOAWAY") {
				t.Errorf("before the next answer came %q", got)
			}
		})
	}
}

// A field proves nothing unless upstream reads credentials from it. A WebSocket's subprotocol is
// read of an upgrade alone, which HTTP/2 has none of; Authorization with the scheme bearer and a
// token. A preflight (OPTIONS) may be answered by upstream ahead of its authentication.
func TestUnreadCredentialsProveNothing(t *testing.T) {
	t.Parallel()
	protocol := passthrough.WebSocketBearer + "eA"
	for name, c := range map[string]struct {
		method string
		code   int
		fields []string
		goaway bool // with the answer
	}{
		"a subprotocol, refused":  {"GET", 403, []string{"sec-websocket-protocol", protocol}, true},
		"a subprotocol, answered": {"GET", 200, []string{"sec-websocket-protocol", protocol}, true},
		"a subprotocol among others": {"GET", 403,
			[]string{"sec-websocket-protocol", "v4.channel.k8s.io, " + protocol}, true},
		"another scheme":       {"GET", 403, []string{"authorization", "Basic Z29vZDpnb29k"}, true},
		"no token":             {"GET", 403, []string{"authorization", "Bearer "}, true},
		"two blanks":           {"GET", 403, []string{"authorization", "Bearer  good"}, true},
		"a tab":                {"GET", 403, []string{"authorization", "Bearer\tgood"}, true},
		"a token in the query": {"GET", 403, nil, true},
		"a token behind another scheme": {"GET", 403,
			[]string{"authorization", "Basic eA==", "authorization", "Bearer good"}, true},
		"a preflight": {"OPTIONS", 204, []string{"authorization", "Bearer nobody's", "origin", "https://a"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := knows(t, rigOptions{})
			r.up.Handle("/answer", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(c.code) }))
			raw := dialHTTP2(t, r, nil)
			raw.settings()
			raw.send(1, c.method, "/answer?access_token=good", c.fields...)
			got := fmt.Sprint(raw.until("HEADERS", 1), raw.quiet())
			if strings.Contains(got, "WINDOW_UPDATE") {
				t.Errorf("it was taken for a known client: %s", got)
			}
			if strings.Contains(got, "GOAWAY") != c.goaway {
				t.Errorf("before the answer came %s", got)
			}
		})
	}
}

// A certificate of the client's own making is no credential, where the listener asks for one: the
// request is the API server's anonymous user's, whatever else it has.
func TestStrangersCertificatesProveNothing(t *testing.T) {
	t.Parallel()
	ca, stranger := newAuthority(t), newAuthority(t)
	up := fakeapiserver.New(fakeapiserver.Options{ProofDelay: 10 * time.Millisecond})
	up.Handle("/answer", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(403) }))
	r := rigOf(t, up, rigOptions{access: true, clientCA: ca.file(), mirrors: []*object.Resource{configMaps}})
	for name, c := range map[string]struct {
		cert   tls.Certificate
		goaway bool
	}{
		"a stranger's":    {stranger.user("alice", time.Now().Add(time.Hour)), true},
		"the authority's": {ca.user("alice", time.Now().Add(time.Hour)), false},
	} {
		t.Run(name, func(t *testing.T) {
			raw := dialHTTP2With(t, r, nil, c.cert)
			raw.settings()
			raw.send(1, "GET", "/answer", "authorization", "Basic eA==")
			got := fmt.Sprint(raw.until("HEADERS", 1), raw.quiet())
			if strings.Contains(got, "GOAWAY") != c.goaway {
				t.Errorf("before the answer came %s", got)
			}
		})
	}
}

// While upstream answers none of a client's requests, a review of its token shows that it is a
// user's: more of them are handled than of a client of which nothing is known.
func TestTokensAreProvenBesideRequests(t *testing.T) {
	t.Parallel()
	const most = 2 * http2HandlersLimit
	for token, handled := range map[string]int{"good": most, "nobody's": http2HandlersLimit} {
		t.Run(token, func(t *testing.T) {
			t.Parallel()
			r := knows(t, rigOptions{})
			gate, arrived := make(chan struct{}), make(chan struct{}, most)
			t.Cleanup(func() { close(gate) }) // before the rig's
			r.up.Handle("/gather", http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
				arrived <- struct{}{}
				<-gate
			}))
			raw := dialHTTP2(t, r, nil)
			raw.settings()
			for i := range uint32(most) {
				raw.ask(2*i+1, "/gather", token)
			}
			for range handled {
				select {
				case <-arrived:
				case <-time.After(patience):
					t.Fatalf("not as many as %d requests are handled", handled)
				}
			}
			for end := time.Now().Add(patience); len(r.reviews.Tokens()) == 0; time.Sleep(time.Millisecond) {
				if time.Now().After(end) {
					t.Fatal("nothing asks whose the token is")
				}
			}
			if opened := strings.Contains(fmt.Sprint(raw.quiet()), "WINDOW_UPDATE 26148865"); opened != (handled == most) {
				t.Errorf("the window is open: %v", opened)
			}
			if n := len(arrived); n > 0 {
				t.Errorf("%d requests more are handled", n)
			}
		})
	}
}

// A client must read a refusal within the stall timeout, even of a request whose answer could last:
// a watch, a log, or a connection to something behind the API server.
func TestRefusalsOfWhatLastsMustBeTaken(t *testing.T) {
	t.Parallel()
	const pods = "/api/v1/namespaces/n/pods"
	for what, path := range map[string]string{
		"a watch": pods + "?watch=1", "a log": pods + "/p/log?follow=true", "an exec": pods + "/p/exec?command=a",
	} {
		for _, version := range []string{"HTTP/1.1", "HTTP/1.1 that upgrades", "HTTP/2"} {
			if version == "HTTP/2" && what == "an exec" {
				continue // it is refused here
			}
			t.Run(what+" over "+version, func(t *testing.T) {
				t.Parallel()
				r := newRig(t, rigOptions{stall: 200 * time.Millisecond, mirrors: []*object.Resource{configMaps}})
				over := make(chan struct{})
				r.up.Handle(pods, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					defer close(over)
					w.WriteHeader(http.StatusForbidden)
					for r.Context().Err() == nil { // more than sockets hold
						if _, err := w.Write(make([]byte, 64<<10)); err != nil {
							return
						}
					}
				}))
				if version == "HTTP/2" {
					raw := dialHTTP2(t, r, nil)
					raw.settings()
					raw.get(1, path)
					raw.until("RST_STREAM", 1) // its window is not refilled
				} else {
					askAndIgnore(t, r.url, path, version != "HTTP/1.1")
				}
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				defer cancel()
				select {
				case <-over:
				case <-ctx.Done():
					t.Error("a client that takes nothing keeps its answer")
				}
			})
		}
	}
}

// askAndIgnore asks for something, and reads nothing of the answer until the test is over.
func askAndIgnore(t *testing.T, url, path string, upgrade bool) {
	t.Helper()
	c, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	request := "GET " + path + " HTTP/1.1\r\nHost: localhost\r\n"
	if upgrade {
		request += "Connection: Upgrade\r\nUpgrade: websocket\r\n"
	}
	if _, err := io.WriteString(c, request+"\r\n"); err != nil {
		t.Fatal(err)
	}
}
