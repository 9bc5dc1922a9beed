package serve

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"spillway/internal/apistatus"
	"spillway/internal/fakeapiserver"
	"spillway/internal/fakeapiserver/rawclient"
	"spillway/internal/flowcontrol"
	"spillway/internal/h2"
	"spillway/internal/object"
	"spillway/internal/passthrough"
	"spillway/internal/watch"
)

// overHTTP2 is a client with one connection, whose streams each take a window of bytes before they
// are read.
func overHTTP2(t *testing.T, window int) *http.Client {
	t.Helper()
	tr := &http.Transport{
		DisableCompression: true,
		TLSClientConfig:    &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // a throw-away certificate
		ForceAttemptHTTP2:  true,
		HTTP2:              &http.HTTP2Config{MaxReceiveBufferPerStream: window},
	}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr}
}

// watch2 opens a watch through a client.
func (r *rig) watch2(c *http.Client, path string) *rawclient.Watcher {
	r.t.Helper()
	w := rawclient.Watch(deadline(r.t), r.tlsURL, path, rawclient.Through(c))
	r.t.Cleanup(w.Close)
	if code, _, err := w.Head(deadline(r.t)); err != nil || code != http.StatusOK {
		r.t.Fatalf("watch %s: %d %v", path, code, err)
	}
	return w
}

// Every answer is the same on both protocols: from memory, refused here, and from upstream (W-2,
// W-3).
func TestAnswersAreTheSameOnBothProtocols(t *testing.T) {
	t.Parallel()
	up := fakeapiserver.New(fakeapiserver.Options{})
	fill(up)
	r := rigOf(t, up, rigOptions{})
	one, two := &http.Client{Transport: &http.Transport{
		DisableCompression: true,
		TLSClientConfig:    &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // a throw-away certificate
	}}, overHTTP2(t, 1<<20)
	t.Cleanup(one.CloseIdleConnections)
	for _, target := range []string{
		mapsPath + "?resourceVersion=0", mapsPath + "?resourceVersion=0&limit=2",
		"/api/v1/namespaces/n/configmaps/c1?resourceVersion=0",
		"/api/v1/namespaces/m/configmaps/big?resourceVersion=0", mapsPath + "?resourceVersion=0&limit=abc",
		"/api/v1/namespaces/n/configmaps/none?resourceVersion=0",
		mapsPath, "/api/v1/nothing", "/version", mapsPath + "?watch=1&resourceVersion=0&timeoutSeconds=1", mapsPath +
			"?watch=1&resourceVersion=1&timeoutSeconds=1",
	} {
		for _, method := range []string{"GET", "HEAD", "OPTIONS"} {
			want, wantBody := get(t, one, method, r.tlsURL+target)
			got, gotBody := get(t, two, method, r.tlsURL+target)
			if want.ProtoMajor != 1 || got.ProtoMajor != 2 {
				t.Fatalf("asked over %s and %s", want.Proto, got.Proto)
			}
			if got.StatusCode != want.StatusCode || gotBody != wantBody || got.ContentLength != want.ContentLength {
				t.Errorf("%s %s:\ngot  %d %d %.300s\nwant %d %d %.300s", method, target, got.StatusCode, got.ContentLength, gotBody,
					want.StatusCode, want.ContentLength, wantBody)
			}
			for _, h := range []http.Header{got.Header, want.Header} {
				h.Del("Audit-Id")
			}
			sameHeaders(t, got.Header, want.Header)
		}
	}
	if n := r.metric("spillway_http2_connections"); n != 1 {
		t.Errorf("%v connections", n)
	}
}

// More watches than a connection may have streams at a time, and more connections for them.
func TestHTTP2ManyWatches(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{mirrors: []*object.Resource{configMaps}})
	client := overHTTP2(t, 64<<10)
	var all []*rawclient.Watcher
	for range http2Streams + 20 {
		all = append(all, r.watch2(client, mapsPath+"?watch=1&resourceVersion=1"))
	}
	if n := r.metric("spillway_http2_connections"); n != 2 {
		t.Errorf("%v connections for %d watches", n, len(all))
	}
	for i := range 3 {
		r.up.Create(fakeapiserver.ConfigMaps, "n", fmt.Sprint(i))
	}
	for _, w := range all {
		expect(t, w, "ADDED n/0 2", "ADDED n/1 3", "ADDED n/2 4")
	}
	for _, w := range all {
		w.Close()
	}
	r.ended(configMaps, watch.EndClientClosed, len(all)) // each by itself: the connections stay
	if n := r.metric("spillway_http2_connections"); n != 2 {
		t.Errorf("%v connections afterwards", n)
	}
}

// A client that leaves one stream unread loses nothing of its other streams on the same connection,
// long before it is evicted from that one; and it loses that one alone (D10).
func TestHTTP2StalledStreamAmongOthers(t *testing.T) {
	t.Parallel()
	for name, stall := range map[string]time.Duration{"before": time.Hour, "evicted": 5 * time.Second} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, rigOptions{stall: stall, mirrors: []*object.Resource{configMaps}})
			client := overHTTP2(t, 64<<10)
			const target = mapsPath + "?watch=1&resourceVersion=1"
			stalled := r.watch2(client, target)
			stalled.Stall()
			var others []*rawclient.Watcher
			for range 3 {
				others = append(others, r.watch2(client, target))
			}
			const writes = 20
			for i := range writes {
				r.up.Create(fakeapiserver.ConfigMaps, "n", fmt.Sprint(i), fakeapiserver.WithPadding(50_000))
			}
			if stall < time.Hour {
				r.ended(configMaps, watch.EndSlowClientStalled, 1)
			}
			r.up.Create(fakeapiserver.ConfigMaps, "n", "last")
			for _, w := range others {
				if events := until(t, w, func(e rawclient.WatchEvent) bool { return e.Key == "n/last" }); len(events) != writes+1 {
					t.Errorf("%d events of %d", len(events), writes+1)
				}
			}
			if n := r.metric("spillway_http2_connections"); n != 1 {
				t.Errorf("%v connections", n)
			}
			if stall < time.Hour {
				stalled.Resume()
				over(t, stalled, rawclient.Cut)
			}
		})
	}
}

// A list pins a state, so a client that leaves it unread is evicted too.
func TestHTTP2StalledList(t *testing.T) {
	t.Parallel()
	up := fakeapiserver.New(fakeapiserver.Options{})
	for i := range 10 {
		up.Create(fakeapiserver.ConfigMaps, "n", fmt.Sprint(i), fakeapiserver.WithPadding(100_000))
	}
	r := rigOf(t, up, rigOptions{stall: time.Second, mirrors: []*object.Resource{configMaps}})
	client := overHTTP2(t, 64<<10)
	response, err := client.Get(r.tlsURL + mapsPath + "?resourceVersion=0")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	list := r.list(mapsPath + "?resourceVersion=0")
	if response.ContentLength != int64(len(list.Body)) {
		t.Errorf("length %d, want %d", response.ContentLength, len(list.Body))
	}
	time.Sleep(2 * time.Second) // it is the client that stalls
	if n, err := io.Copy(io.Discard, response.Body); err == nil || n >= response.ContentLength {
		t.Errorf("a list that was left for two seconds came whole: %d bytes, %v", n, err)
	}
}

// A client that reads nothing at all has all its streams stalled, however large their windows are.
func TestHTTP2StalledConnection(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{stall: 2 * time.Second, mirrors: []*object.Resource{configMaps}})
	raw := dialHTTP2(t, r, func(c *net.TCPConn) error { return c.SetReadBuffer(4096) })
	raw.settings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 30})
	raw.check(raw.framer.WriteWindowUpdate(0, 1<<30))
	raw.get(1, mapsPath+"?watch=1&resourceVersion=1")
	raw.get(3, mapsPath+"?watch=1&resourceVersion=1")
	eventually(t, "the watches", func() bool { return r.metric("spillway_watches", "resource=configmaps") == 2 })
	for i := range 40 {
		r.up.Create(fakeapiserver.ConfigMaps, "n", fmt.Sprint(i), fakeapiserver.WithPadding(100_000))
	}
	r.ended(configMaps, watch.EndSlowClientStalled, 2)
	eventually(t, "the end of the connection", func() bool { return r.metric("spillway_http2_connections") == 0 })
}

// Draining tells clients to go elsewhere with what they ask next, and ends the streams that they
// have after a bookmark (D14).
func TestADrainSendsGoAwayAndEndsStreams(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{mirrors: []*object.Resource{configMaps}})
	r.up.Create(fakeapiserver.ConfigMaps, "n", "a")
	r.mirrored(configMaps)
	raw := dialHTTP2(t, r, nil)
	raw.settings()
	raw.get(1, mapsPath+"?watch=1&resourceVersion=1&allowWatchBookmarks=1")
	raw.until("DATA", 1)
	go r.server.Drain(deadline(t), time.Second)
	seen := raw.until("GOAWAY", 0)
	if rest := append(seen, raw.until("END_STREAM", 1)...); !slices.ContainsFunc(rest, func(f string) bool {
		return strings.Contains(f, `"type":"BOOKMARK"`)
	}) {
		t.Errorf("no bookmark in %q", rest)
	}
	r.ended(configMaps, watch.EndDrain, 1)
	if _, err := raw.framer.ReadFrame(); err != io.EOF {
		t.Errorf("after the last stream: %v, want the end of the connection", err)
	}
}

// Close leaves nothing behind, whatever clients do.
func TestCloseLeavesNoHTTP2ConnectionBehind(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{mirrors: []*object.Resource{configMaps}})
	w := r.watch2(overHTTP2(t, 64<<10), mapsPath+"?watch=1&resourceVersion=1")
	raw := dialHTTP2(t, r, nil) // idle, and deaf to GOAWAY
	raw.settings()
	raw.until("SETTINGS ack", 0)
	r.close()
	over(t, w, rawclient.Cut)
	r.ended(configMaps, watch.EndAborted, 1)
	if n := r.metric("spillway_http2_connections"); n != 0 {
		t.Errorf("%v connections", n)
	}
}

// A connection that comes while the server closes is not counted, so its end is not either.
func TestHTTP2ComesTooLate(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{})
	h := r.server.http2
	h.leaveConns()
	mine, theirs := net.Pipe()
	defer mine.Close()
	c := h2.New(theirs, h2.Options{})
	if h.admitConn(c) {
		t.Fatal("it was admitted")
	}
	h.active.Add(1) // one that was
	h.forgetConn(c)
	if n := r.metric("spillway_http2_connections"); n != 0 {
		t.Fatalf("%v connections", n)
	}
	h.active.Done() // panics if it was done before
	c.Close()
}

// The first frames are a kube-apiserver's (W-1) but for the size of frames and the connection's
// window, which opens with the first request whose sender is known; and so are those of a watch:
// its head at once, a frame per event, and an empty one at the end, which is not the connection's
// (W-2, W-102, W-112, B-5). Extended CONNECT is not offered.
func TestTheFirstFramesAreThoseOfTheAPIServer(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{mirrors: []*object.Resource{configMaps}})
	raw := dialHTTP2(t, r, nil)
	want := "SETTINGS [MAX_FRAME_SIZE = 16384] [MAX_CONCURRENT_STREAMS = 100] [MAX_HEADER_LIST_SIZE = 1048896] " +
		"[HEADER_TABLE_SIZE = 4096] " +
		"[INITIAL_WINDOW_SIZE = 262144] [NO_RFC7540_PRIORITIES = 1]"
	if got := raw.next(); got != want {
		t.Errorf("first\ngot  %q\nwant %q", got, want)
	}
	raw.settings()
	raw.get(1, mapsPath+"?watch=1&resourceVersion=1&timeoutSeconds=2")
	raw.until("WINDOW_UPDATE 26148865", 0)
	raw.until("HEADERS", 1)
	r.up.Create(fakeapiserver.ConfigMaps, "n", "a")
	if got := raw.next(); !strings.HasPrefix(got, `DATA 1 {"type":"ADDED"`) || !strings.HasSuffix(got, "}\n") {
		t.Errorf("the event is %q", got)
	}
	r.up.Delete(fakeapiserver.ConfigMaps, "n", "a")
	if got := raw.next(); !strings.HasPrefix(got, `DATA 1 {"type":"DELETED"`) || !strings.HasSuffix(got, "}\n") {
		t.Errorf("the event is %q", got)
	}
	if got := raw.next(); got != "DATA 1 END_STREAM" {
		t.Errorf("the end is %q", got)
	}
	raw.get(3, mapsPath+"?resourceVersion=0")
	raw.until("END_STREAM", 3)
}

// What protects a listener and whose rights it lends does not depend on the protocol.
func TestListenersProtectBothProtocolsAlike(t *testing.T) {
	t.Parallel()
	got := make(chan http.Header, 1)
	fr := newFront(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got <- r.Header }),
		frontOptions{http2: true, identity: passthrough.IdentitySelf})
	send := func(path, name, value string) int {
		t.Helper()
		r, err := http.NewRequest("GET", fr.url()+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		if name != "" {
			r.Header.Set(name, value)
		}
		resp, err := fr.client(t).Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		return resp.StatusCode
	}
	for _, c := range []struct{ name, value, authorization string }{
		{"", "", "Bearer own"}, {"Authorization", "Bearer mine", "Bearer mine"}, {"X-Remote-User", "root", "Bearer own"},
		{"Sec-Websocket-Protocol", passthrough.WebSocketBearer + "eA", ""},
	} {
		code, seen := send("/x", c.name, c.value), await(t, got, "the request")
		if code != 200 || seen.Get("Authorization") != c.authorization || seen.Get("X-Remote-User") != "" ||
			seen.Get("X-Forwarded-For") != "127.0.0.1" {
			t.Errorf("%s: %d, upstream saw %v", c.name, code, seen)
		}
	}
	if code := send("/x", "Impersonate-User", "root"); code != http.StatusForbidden {
		t.Errorf("impersonation with the proxy's rights: %d", code)
	}
}

// A guard checks HTTP/2 requests, too.
func TestTheGuardChecksHTTP2Requests(t *testing.T) {
	r := newRig(t, rigOptions{mirrors: []*object.Resource{configMaps}})
	secured := &front{}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() {
		served <- r.server.Serve(ln, ListenerConfig{TLS: secured.useTLS(true), Guard: passthrough.NewPlainGuard(nil, nil,
			false),
			Identity: passthrough.IdentitySelf})
	}()
	defer func() {
		r.close()
		if err := <-served; err != nil {
			t.Error(err)
		}
	}()
	client := overHTTP2(t, 64<<10)
	for _, c := range []struct {
		path, header, value string
		want                int
		here                float64 // answered from memory
	}{
		{mapsPath + "?resourceVersion=0", "", "", 200, 1},
		{mapsPath + "?resourceVersion=0", "Host", "evil", 403, 0},
		{mapsPath + "?resourceVersion=0", "Origin", "http://evil", 403, 0},
		{mapsPath + "?resourceVersion=0", "Authorization", "Bearer x", 200, 0},
		{mapsPath + "?resourceVersion=0", "Impersonate-User", "x", 403, 0},
		{"/api/v1/namespaces/a/pods/b/exec", "", "", 403, 0},
	} {
		before := answeredHere(r)
		var opts []rawclient.RequestOption
		if c.header != "" {
			opts = append(opts, rawclient.Header(c.header, c.value))
		}
		list, err := rawclient.List(deadline(t), "https://"+ln.Addr().String(), c.path,
			append(opts, rawclient.Through(client))...)
		if err != nil || list.Status != c.want || answeredHere(r)-before != c.here {
			t.Errorf("%s %s: %v, %+v", c.path, c.header, err, list)
		}
	}
}

// A bug ends one request, and says so on whatever it had begun.
func TestAPanicEndsOneHTTP2Request(t *testing.T) {
	fr := newFront(t, answers(), frontOptions{http2: true, mutate: func(o *passthrough.ForwarderOptions) {
		o.Client = all(panicking{})
	}})
	client := fr.client(t)
	for range 2 {
		if resp, body := get(t, client, "GET", fr.url()+"/small"); resp.StatusCode != 500 ||
			!strings.Contains(body, "bug of the proxy") {
			t.Errorf("%d %s", resp.StatusCode, body)
		}
	}
	fr.awaitIdle(t)
}

// Requests that are passed through stream both ways, count and are limited as over HTTP/1.1, and
// are cancelled alone.
func TestHTTP2PassThrough(t *testing.T) {
	t.Parallel()
	gone := make(chan struct{}, 1)
	fr := newFront(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).EnableFullDuplex()
		_ = http.NewResponseController(w).Flush()
		buf := make([]byte, 100)
		for {
			n, err := r.Body.Read(buf)
			_, _ = w.Write(bytes.ToUpper(buf[:n]))
			_ = http.NewResponseController(w).Flush()
			if err == io.EOF {
				return
			}
			if err != nil {
				gone <- struct{}{}
				return
			}
		}
	}), frontOptions{http2: true, mutate: func(o *passthrough.ForwarderOptions) {
		o.Limiter = impatient(flowcontrol.Limits{Watches: 1})
	}})
	client := fr.client(t)
	for _, leaves := range []bool{false, true} {
		body, feed := io.Pipe()
		ctx, cancel := context.WithCancel(deadline(t))
		request, err := http.NewRequestWithContext(ctx, "POST", fr.url()+"/api/v1/namespaces/a/pods/b/log?follow=1", body)
		if err != nil {
			t.Fatal(err)
		}
		response, err := client.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		for _, word := range []string{"one", "two"} { // each is answered before the next is sent
			_, _ = io.WriteString(feed, word)
			got := make([]byte, len(word))
			if _, err := io.ReadFull(response.Body, got); err != nil || string(got) != strings.ToUpper(word) {
				t.Fatalf("%q came back as %q, %v", word, got, err)
			}
		}
		if resp, body := get(t, client, "GET", fr.url()+"/x?watch=1"); resp.StatusCode != 429 ||
			body != apistatus.TooManyRequestsText || !soon(resp.Header.Get("Retry-After")) {
			t.Errorf("beyond the limit: %d %s", resp.StatusCode, body)
		}
		if leaves {
			cancel()
			_ = response.Body.Close() // the client looks at its context only between two reads of the request's body
			await(t, gone, "the cancellation upstream")
		} else {
			_ = feed.Close()
			if rest, err := io.ReadAll(response.Body); err != nil || len(rest) > 0 {
				t.Errorf("the end: %q, %v", rest, err)
			}
		}
		_ = response.Body.Close()
		_ = feed.Close() // again, for a client that has left
		cancel()
		fr.awaitIdle(t)
	}
	for code, want := range map[string]float64{"200": 2, "429": 2} {
		if n := fr.metric(t, "spillway_passthrough_requests_total", "code="+code, "kind=watch"); n != want {
			t.Errorf("%v requests counted as %s, want %v", n, code, want)
		}
	}
}

// A LIST that passes through holds up other requests for the same list only until its head is
// there, however slowly its client reads the rest (D7).
func TestHTTP2Stampede(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{mirrors: []*object.Resource{configMaps}})
	for i := range 5 { // too few to be worth a proof
		r.up.Create(fakeapiserver.ConfigMaps, "n", fmt.Sprintf("c%03d", i))
	}
	r.mirrored(configMaps)
	before := len(r.up.RequestsFor(fakeapiserver.ConfigMaps, "list"))
	r.up.StallReads(fakeapiserver.ConsistentReads)
	client := overHTTP2(t, 64<<10)
	var clients sync.WaitGroup
	const crowd = 40
	for range crowd {
		clients.Go(func() {
			if list, err := rawclient.List(deadline(t), r.tlsURL, mapsPath, rawclient.Through(client)); err != nil ||
				len(list.Items) != 5 {
				t.Errorf("%v, %+v", err, list)
			}
		})
	}
	eventually(t, "all to have asked", func() bool { return r.answered(recentFromUpstream) == crowd })
	r.up.StallReads(fakeapiserver.NoReads)
	clients.Wait()
	asked := len(r.up.RequestsFor(fakeapiserver.ConfigMaps, "list")) - before
	if shared := int(r.metric("spillway_shared_lists_total", "resource=configmaps")); asked > 5 || asked < 1 ||
		shared < crowd-5 {
		t.Errorf("%d LISTs upstream for %d clients, of whom %d shared one", asked, crowd, shared)
	}
}

// rawHTTP2 is a client that shows every frame, and sends none by itself.
type rawHTTP2 struct {
	t      *testing.T
	framer *http2.Framer
}

// dialHTTP2 opens a connection to a rig's TLS listener.
func dialHTTP2(t *testing.T, r *rig, tune func(*net.TCPConn) error) *rawHTTP2 {
	t.Helper()
	return dialHTTP2With(t, r, tune)
}

// dialHTTP2With is dialHTTP2 of a client with certificates.
func dialHTTP2With(t *testing.T, r *rig, tune func(*net.TCPConn) error, certificates ...tls.Certificate) *rawHTTP2 {
	t.Helper()
	raw := &rawHTTP2{t: t}
	tcp, err := net.Dial("tcp", strings.TrimPrefix(r.tlsURL, "https://"))
	raw.check(err)
	if tune != nil {
		raw.check(tune(tcp.(*net.TCPConn)))
	}
	conn := tls.Client(tcp, &tls.Config{InsecureSkipVerify: true, Certificates: certificates,
		NextProtos: []string{"h2"}}) //nolint:gosec // a throw-away certificate
	t.Cleanup(func() { _ = tcp.Close() })
	raw.check(conn.SetDeadline(time.Now().Add(patience)))
	_, err = io.WriteString(conn, http2.ClientPreface)
	raw.check(err)
	if p := conn.ConnectionState().NegotiatedProtocol; p != "h2" {
		t.Fatalf("negotiated %q", p)
	}
	raw.framer = http2.NewFramer(conn, conn)
	return raw
}

func (r *rawHTTP2) check(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

func (r *rawHTTP2) settings(all ...http2.Setting) {
	r.t.Helper()
	r.check(r.framer.WriteSettings(all...))
}

// get sends a GET on a stream. Heads are not compressed.
func (r *rawHTTP2) get(id uint32, path string) {
	r.t.Helper()
	var block bytes.Buffer
	enc := hpack.NewEncoder(&block)
	for _, f := range [][2]string{{":method", "GET"}, {":scheme", "https"}, {":authority", "localhost"}, {":path", path}} {
		r.check(enc.WriteField(hpack.HeaderField{Name: f[0], Value: f[1], Sensitive: true}))
	}
	r.check(r.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block.Bytes(), EndHeaders: true,
		EndStream: true}))
}

// next is the next frame in a few words.
func (r *rawHTTP2) next() string {
	r.t.Helper()
	frame, err := r.framer.ReadFrame()
	r.check(err)
	switch f := frame.(type) {
	case *http2.SettingsFrame:
		if f.IsAck() {
			return "SETTINGS ack"
		}
		text := "SETTINGS"
		r.check(f.ForeachSetting(func(s http2.Setting) error {
			text += " " + s.String()
			return nil
		}))
		return text
	case *http2.WindowUpdateFrame:
		return fmt.Sprint("WINDOW_UPDATE ", f.Increment)
	case *http2.DataFrame:
		text := fmt.Sprintf("DATA %d %s", f.StreamID, f.Data())
		if f.StreamEnded() {
			text += "END_STREAM"
		}
		return text
	}
	return fmt.Sprintf("%s %d", frame.Header().Type, frame.Header().StreamID)
}

// until reads on to a frame of a kind, on a stream if that is not 0, and returns what it has read.
func (r *rawHTTP2) until(kind string, id uint32) []string {
	r.t.Helper()
	var all []string
	for {
		f := r.next()
		all = append(all, f)
		if strings.Contains(f, kind) && (id == 0 || strings.Contains(f, fmt.Sprintf(" %d", id))) {
			return all
		}
	}
}
