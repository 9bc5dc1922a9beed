package largeheaders

import (
	"bytes"
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"spillway/test/framework/process"
)

// crumb is the length of the value that a head repeats: it fits into HPACK's table, so that each
// repetition is a byte.
const crumb = 3950

// head is the request of every stream of an attack.
type head struct {
	name, value string
	times       int
	path        string                // empty: one that passes through, and that upstream refuses
	credentials string                // the Authorization field; empty: none
	raw         func(*attacker) error // instead of all that, once
	old         bool                  // over HTTP/1.1, once
	endless     bool                  // over HTTP/1.1, without its last line
}

// nodes is the path of most attacks.
const nodes = "/api/v1/nodes"

// attacks are heads that are small on the wire.
var attacks = map[string]head{
	"cookie":                     {name: "cookie", value: strings.Repeat("c", crumb), times: 250},
	"x-forwarded-for":            {name: "x-forwarded-for", value: strings.Repeat("f", crumb), times: 250},
	"a field that is not joined": {name: "x-other", value: strings.Repeat("o", crumb), times: 250},
	"user-agent":                 {name: "user-agent", value: strings.Repeat("u", crumb), times: 250},
	"impersonate-group":          {name: "impersonate-group", value: strings.Repeat("g", crumb), times: 250},
	"accept":                     {name: "accept", value: strings.Repeat("a", crumb), times: 250},
	"traceparent":                {name: "traceparent", value: strings.Repeat("t", crumb), times: 250},
	"many small fields":          {name: "x", value: "", times: 30_000},
	"ordinary heads":             {name: "x-other", value: "o", times: 1},
	"sec-websocket-protocol":     {name: "sec-websocket-protocol", value: strings.Repeat("p,", crumb/2), times: 250},
	"accept of many elements":    {name: "accept", value: strings.Repeat("*,", crumb/2), times: 10},
	"accept of what is mirrored": {name: "accept", value: strings.Repeat("*,", crumb/2), times: 10,
		path: "/api/v1/configmaps"},
	"accept-encoding": {name: "accept-encoding", value: strings.Repeat("a,", crumb/2), times: 10,
		path: "/api/v1/configmaps"},
	"warning":                    {name: "warning", value: strings.Repeat("w", crumb), times: 250},
	"te":                         {name: "te", value: strings.Repeat("t", crumb), times: 250},
	"connection":                 {name: "connection", value: strings.Repeat("c,", crumb/2), times: 10},
	"x-remote-group":             {name: "x-remote-group", value: strings.Repeat("g", crumb), times: 250},
	"x-remote-extra":             {name: "x-remote-extra-a", value: strings.Repeat("e", crumb), times: 10},
	"impersonate-extra":          {name: "impersonate-extra-a", value: strings.Repeat("e", crumb), times: 10},
	"authorization":              {name: "authorization", value: "Bearer " + strings.Repeat("a", crumb), times: 10},
	"a path of many segments":    {path: nodes + strings.Repeat("/a", 6000) + "//"},
	"a path that is decoded":     {path: nodes + strings.Repeat("/%2561", 2000)},
	"a query of many parameters": {path: nodes + "?" + strings.Repeat("a&", 20_000)},
	"a frame that is announced":  {raw: (*attacker).announce},
	"a head without an end": {name: "cookie", value: strings.Repeat("c", crumb), times: 250, old: true,
		endless: true},
	"trailer": {name: "trailer", value: strings.Repeat("t,", crumb/2), times: 250},
	"cookie, with a token of nobody's": {name: "cookie", value: strings.Repeat("c", crumb), times: 250,
		credentials: "Bearer nobody"},
}

// over11 are those that are tried over HTTP/1.1, too: each of the ways in which a head is held.
var over11 = []string{
	"cookie", "cookie, with a token of nobody's", "x-forwarded-for", "sec-websocket-protocol",
	"a field that is not joined", "accept", "many small fields", "ordinary heads", "a path of many segments",
}

func init() {
	for _, name := range over11 {
		h := attacks[name]
		h.old = true
		attacks[name+", over HTTP/1.1"] = h
	}
}

// streams is how many a connection of the attack opens: as many as a client may.
const streams = 100

// attacker is a connection over HTTP/2 whose client takes no byte of any answer.
type attacker struct {
	net    net.Conn
	framer *http2.Framer
	mu     sync.Mutex // held while writing
	sent   int64
	over   chan struct{} // closed when the server has ended the connection
	heard  chan struct{} // closed when the server has read the whole request
}

func connect(t *testing.T, p *process.Proxy, old bool) *attacker {
	t.Helper()
	protocols := []string{"h2"}
	if old {
		protocols = nil
	}
	config := &tls.Config{InsecureSkipVerify: true, NextProtos: protocols}
	c, err := tls.Dial("tcp", strings.TrimPrefix(p.TLS, "https://"), config)
	if err != nil {
		t.Fatal(err)
	}
	a := &attacker{net: c, framer: http2.NewFramer(c, c), over: make(chan struct{}), heard: make(chan struct{})}
	t.Cleanup(a.close)
	_ = c.SetDeadline(time.Now().Add(5 * time.Minute))
	if old {
		go a.readOld()
		return a
	}
	if _, err := io.WriteString(c, http2.ClientPreface); err != nil {
		t.Fatal(err)
	}
	a.write(func() error { return a.framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0}) })
	go a.read()
	return a
}

func (a *attacker) close() { _ = a.net.Close(); <-a.over }

// announce begins a frame that is as long as any may be, and leaves it at that.
func (a *attacker) announce() error {
	_, err := a.net.Write([]byte{0, 0x40, 0, byte(http2.FrameData), 0, 0, 0, 0, 1})
	return err
}

func (a *attacker) write(f func() error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	_ = f() // fails when the server has ended the connection, as it may
}

// read reads what the server says, and takes nothing of what it answers.
func (a *attacker) read() {
	defer close(a.over)
	for {
		f, err := a.framer.ReadFrame()
		var stream http2.StreamError
		if err != nil && !errors.As(err, &stream) {
			return
		}
		switch f := f.(type) {
		case *http2.SettingsFrame:
			if !f.IsAck() {
				a.write(a.framer.WriteSettingsAck)
			}
		case *http2.PingFrame:
			if f.IsAck() {
				close(a.heard)
				continue
			}
			a.write(func() error { return a.framer.WritePing(true, f.Data) })
		}
	}
}

// readOld reads the first byte of an answer over HTTP/1.1, and waits for the end of the connection.
func (a *attacker) readOld() {
	defer close(a.over)
	if _, err := a.net.Read(make([]byte, 1)); err != nil {
		return
	}
	close(a.heard)
	_, _ = io.Copy(io.Discard, a.net)
}

func (a *attacker) open() bool {
	select {
	case <-a.over:
		return false
	default:
		return true
	}
}

// ask sends h, and returns when the server has read it or ended the connection.
func (a *attacker) ask(h head, frames []byte) {
	switch {
	case h.raw != nil:
		a.write(func() error { return h.raw(a) })
		return
	case h.old:
		if a.askOld(h); h.endless {
			return
		}
	default:
		a.write(func() error { return a.send(frames) })
	}
	select {
	case <-a.heard:
	case <-a.over:
	}
}

// oldHead is how many bytes a head over HTTP/1.1 has here: less than one that is large.
const oldHead = 15 << 10

// askOld sends one request, with as many fields as there is room for.
func (a *attacker) askOld(h head) {
	var text strings.Builder
	path := cmp.Or(h.path, nodes)
	fmt.Fprintf(&text, "GET %s HTTP/1.1\r\nHost: localhost\r\n", path[:min(len(path), oldHead-100)])
	if h.credentials != "" {
		fmt.Fprintf(&text, "Authorization: %s\r\n", h.credentials)
	}
	for range h.times {
		if text.Len()+len(h.name)+len(h.value) > oldHead {
			break
		}
		fmt.Fprintf(&text, "%s: %s\r\n", h.name, h.value)
	}
	if !h.endless {
		text.WriteString("\r\n")
	}
	_ = a.send([]byte(text.String())) // fails when the server has ended the connection
}

func (a *attacker) send(b []byte) error {
	n, err := a.net.Write(b)
	a.sent += int64(n)
	return err
}

// frames are those that open all streams of a connection. They are the same for each of them.
func (h head) frames() []byte {
	var all, block bytes.Buffer
	framer := http2.NewFramer(&all, nil)
	encoder := hpack.NewEncoder(&block)
	// into memory
	field := func(name, value string) { _ = encoder.WriteField(hpack.HeaderField{Name: name, Value: value}) }
	for i := range uint32(streams) {
		block.Reset()
		field(":method", "GET")
		field(":scheme", "https")
		field(":authority", "localhost")
		field(":path", cmp.Or(h.path, nodes))
		if h.credentials != "" {
			field("authorization", h.credentials)
		}
		for range h.times {
			field(h.name, h.value)
		}
		const most = 16 << 10 // of a frame that any server takes
		first, rest := block.Next(most), &block
		_ = framer.WriteHeaders(http2.HeadersFrameParam{
			StreamID: 2*i + 1, BlockFragment: first, EndStream: true, EndHeaders: rest.Len() == 0,
		})
		for rest.Len() > 0 {
			next := rest.Next(most)
			_ = framer.WriteContinuation(2*i+1, rest.Len() == 0, next)
		}
	}
	_ = framer.WritePing(false, [8]byte{1})
	return all.Bytes()
}

func (h head) String() string {
	return fmt.Sprintf("%d × %s of %d bytes", h.times, h.name, len(h.value))
}
