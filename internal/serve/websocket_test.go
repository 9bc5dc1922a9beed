package serve

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	internal "k8s.io/apiserver/pkg/apis/audit"

	"spillway/internal/apistatus"
	"spillway/internal/auth"
	"spillway/internal/clientconn"
	"spillway/internal/fakeapiserver"
	"spillway/internal/object"
	"spillway/internal/passthrough"
	"spillway/internal/watch"
	"spillway/internal/websocket"
)

// webSocket is a client's.
type webSocket struct {
	t    *testing.T
	conn net.Conn
	in   *bufio.Reader
	head *http.Response
}

// dialWebSocket sends a handshake, its headers changed, and reads the answer to it.
func dialWebSocket(t *testing.T, base, target, early string, changes ...string) *webSocket {
	t.Helper()
	u, err := url.Parse(base)
	if err != nil {
		t.Fatal(err)
	}
	var c net.Conn
	if u.Scheme == "https" {
		dialer := tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}} //nolint:gosec // a throw-away certificate
		c, err = dialer.DialContext(t.Context(), "tcp", u.Host)
	} else {
		var dialer net.Dialer
		c, err = dialer.DialContext(t.Context(), "tcp", u.Host)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(patience))
	h := http.Header{"Upgrade": {"websocket"}, "Connection": {"Upgrade"}, "Sec-Websocket-Version": {"13"},
		"Sec-Websocket-Key": {"dGhlIHNhbXBsZSBub25jZQ=="}, "Origin": {"http://example.com"}}
	for _, change := range changes {
		name, value, _ := strings.Cut(change, ": ")
		if h.Del(name); value != "" {
			h.Set(name, value)
		}
	}
	var request bytes.Buffer
	fmt.Fprintf(&request, "GET %s HTTP/1.1\r\nHost: %s\r\n", target, u.Host)
	_ = h.Write(&request)
	request.WriteString("\r\n" + early)
	if _, err := c.Write(request.Bytes()); err != nil {
		t.Fatal(err)
	}
	w := &webSocket{t: t, conn: c, in: bufio.NewReader(c)}
	if w.head, err = http.ReadResponse(w.in, nil); err != nil {
		t.Fatal(err)
	}
	return w
}

// next is the next frame.
func (w *webSocket) next() (opcode byte, payload []byte, err error) {
	var head [2]byte
	if _, err := io.ReadFull(w.in, head[:]); err != nil {
		return 0, nil, err
	}
	if head[0]&0x80 == 0 || head[1]&0x80 != 0 {
		return 0, nil, fmt.Errorf("a frame begins with %x", head)
	}
	size := int(head[1])
	if more := map[int]int{126: 2, 127: 8}[size]; more > 0 {
		size = 0
		for range more {
			b, err := w.in.ReadByte()
			if err != nil {
				return 0, nil, err
			}
			size = size<<8 | int(b)
		}
	}
	payload = make([]byte, size)
	_, err = io.ReadFull(w.in, payload)
	return head[0] & 0xf, payload, err
}

// lines are the next n events. A bookmark is only its kind.
func (w *webSocket) lines(n int) (out []string) {
	w.t.Helper()
	for range n {
		op, payload, err := w.next()
		if err != nil || op != 1 || !bytes.HasSuffix(payload, []byte("\n")) {
			w.t.Fatalf("after %q: %d %q, %v", out, op, payload, err)
		}
		var event struct {
			Type   string
			Object struct {
				Metadata struct{ Annotations map[string]string }
			}
		}
		if err := json.Unmarshal(payload, &event); err != nil {
			w.t.Fatal(err)
		}
		if event.Type == "BOOKMARK" {
			payload = fmt.Append(nil, "BOOKMARK ", event.Object.Metadata.Annotations["k8s.io/initial-events-end"] == "true")
		}
		out = append(out, string(payload))
	}
	return out
}

// ends expects these bytes, and then the end of the connection.
func (w *webSocket) ends(want string) {
	w.t.Helper()
	if rest, err := io.ReadAll(w.in); string(rest) != want || err != nil {
		w.t.Errorf("at the end: %q, %v; want %q", rest, err, want)
	}
}

func (w *webSocket) send(frames string) {
	w.t.Helper()
	if _, err := io.WriteString(w.conn, frames); err != nil {
		w.t.Fatal(err)
	}
}

// masked is a frame of a client, with a mask of zeros.
func masked(first byte, payload string) string {
	return string([]byte{first, 0x80 | byte(len(payload)), 0, 0, 0, 0}) + payload
}

// A WebSocket watch shows the events of a plain one, one in a frame, from memory.
func TestWebSocketWatchIsServedFromMemory(t *testing.T) {
	up := fakeapiserver.New(fakeapiserver.Options{ProofDelay: 10 * time.Millisecond})
	fill(up)
	r := rigOf(t, up, rigOptions{mirrors: []*object.Resource{configMaps}})
	for i, base := range []string{r.url, r.tlsURL} {
		for _, options := range []struct {
			query   string
			initial int
		}{
			{"", 9},
			{"&resourceVersion=0", 9},
			{"&resourceVersion=0&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan", 10},
			{"&resourceVersion=0&labelSelector=parity%3D1", 3},
		} {
			target := mapsPath + "?watch=1" + options.query
			ws, plain := dialWebSocket(t, base, target, ""), r.watch(target)
			if ws.head.StatusCode != http.StatusSwitchingProtocols ||
				ws.head.Header.Get("Sec-WebSocket-Accept") != "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=" || len(ws.head.Header) != 3 {
				t.Fatalf("%s: %s %v", target, ws.head.Status, ws.head.Header)
			}
			got, want := ws.lines(options.initial), lines(t, plain, options.initial)
			name := fmt.Sprint("new-", i, len(options.query))
			up.Create(fakeapiserver.ConfigMaps, "n", name, fakeapiserver.WithLabel("parity", "1"))
			up.Delete(fakeapiserver.ConfigMaps, "n", name)
			got, want = append(got, ws.lines(2)...), append(want, lines(t, plain, 2)...)
			if !slices.Equal(got, want) {
				t.Errorf("%s:\ngot  %q\nwant %q", target, got, want)
			}
			if n := slices.IndexFunc(r.server.Watches(), func(w watch.Watch) bool { return w.Protocol == "WebSocket" }); n < 0 {
				t.Error("the watch is not listed")
			}
			_ = ws.conn.Close()
			plain.Close()
			eventually(t, "both to end", func() bool { return r.metric("spillway_watches") == 0 })
		}
	}
	if n := len(up.RequestsFor(fakeapiserver.ConfigMaps, "watch")); n != 1 {
		t.Errorf("%d watches upstream", n)
	}
}

// Ends are the close frame, ERROR events before it (W-107, W-112, W-120).
func TestWebSocketWatchEnds(t *testing.T) {
	r := newRig(t, rigOptions{mirrors: []*object.Resource{configMaps}, limits: &shortMemory})
	first := r.up.Create(fakeapiserver.ConfigMaps, "n", "a", fakeapiserver.WithPadding(10_000))
	for i := range 20 {
		r.up.Update(fakeapiserver.ConfigMaps, "n", "a", fakeapiserver.WithData("i", fmt.Sprint(i)))
	}
	r.mirrored(configMaps)
	for _, base := range []string{r.url, r.tlsURL} {
		w := dialWebSocket(t, base, mapsPath+"?watch=1&resourceVersion=0&timeoutSeconds=1", "")
		w.lines(1)
		w.ends(websocket.CloseNormal)
		w = dialWebSocket(t, base, fmt.Sprintf("%s?watch=1&resourceVersion=%d", mapsPath, first), "")
		if got := w.lines(1)[0]; !strings.Contains(got, `"ERROR"`) || !strings.Contains(got, `"code":410`) {
			t.Error(got)
		}
		w.ends(websocket.CloseNormal)
		w = dialWebSocket(t, base, mapsPath+"?watch=1&resourceVersion=abc", "")
		if w.head.StatusCode != http.StatusInternalServerError || !w.head.Close {
			t.Errorf("%s, closed: %t", w.head.Status, w.head.Close)
		}
	}
	r.ended(configMaps, watch.EndTimeout, 2)
	r.ended(configMaps, watch.EndResourceVersionExpired, 2)
}

// Pings are echoed, early ones too, and the client's close is answered (W-121 to W-123).
func TestWebSocketClientFrames(t *testing.T) {
	r := newRig(t, rigOptions{mirrors: []*object.Resource{configMaps}})
	ended := 0
	for _, base := range []string{r.url, r.tlsURL} {
		const target = mapsPath + "?watch=1&resourceVersion=1"
		for name, c := range map[string]struct{ early, later, answer string }{
			"a close frame":        {"", masked(0x88, "\x03\xe9"), websocket.CloseNormal},
			"an early close frame": {masked(0x88, ""), "", websocket.CloseNormal},
			"pings": {masked(0x89, "early"), masked(0x81, "ignored") + masked(0x89, "late") + masked(0x88, ""),
				"\x8a\x05early\x8a\x04late" + websocket.CloseNormal},
			"no mask": {"", "\x89\x00", "\x88\x02\x03\xea" + websocket.CloseNormal},
		} {
			w := dialWebSocket(t, base, target, c.early)
			w.send(c.later)
			t.Log(name)
			w.ends(c.answer)
			ended++
			r.ended(configMaps, watch.EndClientClosed, ended)
		}
		w := dialWebSocket(t, base, target, "")
		if err := w.conn.(clientconn.HalfCloser).CloseWrite(); err != nil {
			t.Fatal(err)
		}
		w.ends(websocket.CloseNormal)
		ended++
		r.ended(configMaps, watch.EndClientClosed, ended)
	}
}

// Events and pongs do not mix, and a client that reads nothing is evicted, also while it pings.
func TestWebSocketStalledClientIsEvicted(t *testing.T) {
	r := newRig(t, rigOptions{stall: time.Second, mirrors: []*object.Resource{configMaps}})
	for i, base := range []string{r.url, r.tlsURL} {
		w := dialWebSocket(t, base, mapsPath+"?watch=1&resourceVersion=1", "")
		stop := make(chan struct{})
		go func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if _, err := io.WriteString(w.conn, masked(0x89, strings.Repeat("p", 100))); err != nil {
					return
				}
			}
		}()
		for n := range 40 {
			r.up.Create(fakeapiserver.ConfigMaps, "n", fmt.Sprint(i, "-", n), fakeapiserver.WithPadding(200_000))
		}
		r.ended(configMaps, watch.EndSlowClientStalled, i+1)
		close(stop)
	}
}

// Pongs go out between events, however large these are.
func TestWebSocketPongsAmongEvents(t *testing.T) {
	r := newRig(t, rigOptions{mirrors: []*object.Resource{configMaps}})
	for i, base := range []string{r.url, r.tlsURL} {
		w := dialWebSocket(t, base, mapsPath+"?watch=1&resourceVersion="+fmt.Sprint(r.up.Revision()), "")
		const events, pings = 20, 200
		go func() {
			for n := range events {
				r.up.Create(fakeapiserver.ConfigMaps, "n", fmt.Sprint(i, "-", n), fakeapiserver.WithPadding(100_000))
			}
		}()
		go func() {
			for n := range pings {
				_, _ = io.WriteString(w.conn, masked(0x89, fmt.Sprint(n)))
			}
		}()
		seen := map[byte]int{}
		for seen[1] < events || seen[10] < pings {
			op, payload, err := w.next()
			if err != nil || op == 1 && !json.Valid(payload) || op == 10 && string(payload) != fmt.Sprint(seen[op]) {
				t.Fatalf("%v: %d, %d bytes, %v", seen, op, len(payload), err)
			}
			seen[op]++
		}
	}
}

// What kube-apiserver would not agree to, or what is no watch, passes through.
func TestWebSocketPassesThrough(t *testing.T) {
	r := newRig(t, rigOptions{mirrors: []*object.Resource{configMaps}})
	for _, c := range [][]string{
		{"?watch=1&resourceVersion=0", "Origin"},
		{"?watch=1&resourceVersion=0", "Sec-WebSocket-Version: 8"},
		{"?watch=1&resourceVersion=0", "Sec-WebSocket-Protocol: a, b"},
		{"?watch=1&resourceVersion=0", "Sec-WebSocket-Protocol: " + passthrough.WebSocketBearer + "eA"},
		{"?resourceVersion=0"},
	} {
		w := dialWebSocket(t, r.url, mapsPath+c[0], "", c[1:]...)
		if !upstreams(w.head.Header) {
			t.Errorf("%q did not pass through: %s", c, w.head.Status)
		}
		_ = w.conn.Close()
	}
}

// A WebSocket watch is authorised, reviewed again and put on record as others are.
func TestWebSocketWatchIsOnRecord(t *testing.T) {
	r, j := audited(t, internal.LevelMetadata, true, rigOptions{access: true})
	r.people()
	const target = inN + "?watch=1&resourceVersion=0"
	denied := dialWebSocket(t, r.tlsURL, target, "", "Authorization: Bearer bob")
	if denied.head.StatusCode != http.StatusForbidden || upstreams(denied.head.Header) {
		t.Errorf("without rights: %s", denied.head.Status)
	}
	const id = "00000000-0000-0000-0000-000000000001"
	w := dialWebSocket(t, r.tlsURL, target, "", "Authorization: Bearer alice", apistatus.AuditIDHeader+": "+id)
	if w.head.StatusCode != http.StatusSwitchingProtocols {
		t.Fatal(w.head.Status)
	}
	w.send(masked(0x88, ""))
	_, _ = io.Copy(io.Discard, w.in)
	eventually(t, "the record of its end", func() bool { return len(j.of(t, id)) == 3 })
	for _, e := range j.of(t, id)[1:] {
		if e.ResponseStatus.Code != http.StatusSwitchingProtocols {
			t.Errorf("%s: %v", e.Stage, e.ResponseStatus)
		}
	}
}

// A WebSocket watch that upstream no longer allows ends with the close frame (W-120).
func TestWebSocketWatchIsRevoked(t *testing.T) {
	for _, secure := range []bool{false, true} {
		r := newRig(t, rigOptions{access: true})
		r.people()
		base := r.url
		if secure {
			base = r.tlsURL
		}
		w := dialWebSocket(t, base, inN+"?watch=1&resourceVersion=1", "", "Authorization: Bearer alice")
		if w.head.StatusCode != http.StatusSwitchingProtocols {
			t.Fatal(w.head.Status)
		}
		r.up.Create(fakeapiserver.ConfigMaps, "n", "seen")
		w.lines(1)
		r.reviews.Allow(func(authorizationv1.SubjectAccessReviewSpec) bool { return false })
		r.access.Reauthorizer.Check(func(*auth.Identity, auth.Attributes) bool { return true })
		w.ends(websocket.CloseNormal)
		r.ended(configMaps, watch.EndForbidden, 1)
	}
}

// A drain ends WebSocket watches with a close frame, and a server that stops cuts them.
func TestWebSocketWatchesEndWithTheServer(t *testing.T) {
	r := newRig(t, rigOptions{mirrors: []*object.Resource{configMaps}})
	w := dialWebSocket(t, r.tlsURL, mapsPath+"?watch=1&resourceVersion=1", "")
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		r.server.Drain(t.Context(), 10*time.Millisecond)
	}()
	w.ends(websocket.CloseNormal)
	<-drained

	r = newRig(t, rigOptions{mirrors: []*object.Resource{configMaps}})
	w = dialWebSocket(t, r.url, mapsPath+"?watch=1&resourceVersion=1", "")
	if err := r.server.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := w.in.ReadByte(); err == nil || errors.Is(err, io.EOF) {
		t.Errorf("it ends with %v", err)
	}
}
