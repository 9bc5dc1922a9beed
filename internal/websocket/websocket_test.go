package websocket

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	xnet "golang.org/x/net/websocket"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const key = "dGhlIHNhbXBsZSBub25jZQ=="

// handshake are the headers of one that is agreed to, with some replaced: "Name: value" sets, and
// "Name:" removes.
func handshake(changes ...string) http.Header {
	h := http.Header{"Upgrade": {"websocket"}, "Connection": {"Upgrade"}, "Sec-Websocket-Version": {"13"},
		"Sec-Websocket-Key": {key}, "Origin": {"http://example.com"}}
	for _, c := range changes {
		name, value, _ := strings.Cut(c, ":")
		h.Del(name)
		for v := range strings.SplitSeq(value, "|") {
			if v = strings.TrimSpace(v); v != "" {
				h.Add(name, v)
			}
		}
	}
	return h
}

// serverOf is what kube-apiserver serves WebSockets with.
func serverOf(t *testing.T, serve func(*xnet.Conn)) string {
	t.Helper()
	s := httptest.NewServer(xnet.Handler(serve))
	t.Cleanup(s.Close)
	return s.Listener.Addr().String()
}

// rawHead sends a handshake, and returns the head of the answer as it came.
func rawHead(t *testing.T, addr string, h http.Header) string {
	t.Helper()
	var dialer net.Dialer
	c, err := dialer.DialContext(t.Context(), "tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(10 * time.Second))
	var request bytes.Buffer
	request.WriteString("GET /x HTTP/1.1\r\nHost: " + addr + "\r\n")
	_ = h.Write(&request)
	request.WriteString("\r\n")
	if _, err := c.Write(request.Bytes()); err != nil {
		t.Fatal(err)
	}
	var head strings.Builder
	for in := bufio.NewReader(c); !strings.HasSuffix(head.String(), "\r\n\r\n"); {
		line, err := in.ReadString('\n')
		head.WriteString(line)
		if err != nil {
			break
		}
	}
	return head.String()
}

// A handshake that is agreed to here is agreed to in golang.org/x/net, in the same bytes. What that
// refuses is not read here.
func TestHandshakeAsKubeAPIServers(t *testing.T) {
	addr := serverOf(t, func(*xnet.Conn) {})
	for _, c := range []struct {
		changes []string
		ok      bool
	}{
		{nil, true},
		{[]string{"Connection: keep-alive, Upgrade", "Upgrade: WebSocket"}, true},
		{[]string{"Sec-WebSocket-Protocol: base64.binary.k8s.io"}, true},
		{[]string{"Sec-WebSocket-Protocol: anything"}, true},
		{[]string{"Sec-WebSocket-Extensions: permessage-deflate"}, true},
		{[]string{"Sec-WebSocket-Key: short"}, true},
		{[]string{"Sec-WebSocket-Protocol: a, b"}, false},
		{[]string{"Sec-WebSocket-Key:"}, false},
		{[]string{"Sec-WebSocket-Version: 8"}, false},
		{[]string{"Origin:"}, false},
		{[]string{"Origin: null"}, false},
		{[]string{"Upgrade: h2c"}, false},
		{[]string{"Connection: close"}, false},
	} {
		h := handshake(c.changes...)
		got, ok := HandshakeOf(addr, func(name string) []string { return h[http.CanonicalHeaderKey(name)] })
		theirs := rawHead(t, addr, h)
		switch {
		case ok != c.ok:
			t.Errorf("%q: agreed to: %t", c.changes, ok)
		case ok && string(got.Answer()) != theirs:
			t.Errorf("%q:\ngot  %q\nwant %q", c.changes, got.Answer(), theirs)
		case !ok && strings.HasPrefix(theirs, "HTTP/1.1 101"):
			t.Errorf("%q: kube-apiserver agrees to what is not read here", c.changes)
		}
	}
	for _, unread := range [][]string{
		{"Connection: Upgrade, X-Remote-User"}, {"Connection: Upgrade|keep-alive"}, {"Upgrade: websocket|websocket"},
		{"Sec-WebSocket-Protocol: base64url.bearer.authorization.k8s.io.eA"}, {"Sec-WebSocket-Protocol: a|b"},
		{"Sec-WebSocket-Protocol: a b"},
	} {
		h := handshake(unread...)
		if _, ok := HandshakeOf(addr, func(name string) []string { return h[http.CanonicalHeaderKey(name)] }); ok {
			t.Errorf("%q was agreed to", unread)
		}
	}
}

// Frames have the heads that golang.org/x/net gives them.
func TestHeadsAsKubeAPIServers(t *testing.T) {
	for _, size := range []int{0, 1, 125, 126, 127, 65535, 65536, 70000} {
		for _, op := range []Opcode{Text, Binary} {
			payload := bytes.Repeat([]byte{'x'}, size)
			addr := serverOf(t, func(ws *xnet.Conn) {
				var message any = payload
				if op == Text {
					message = string(payload)
				}
				_ = xnet.Message.Send(ws, message)
				_ = ws.Close()
			})
			var dialer net.Dialer
			c, err := dialer.DialContext(t.Context(), "tcp", addr)
			if err != nil {
				t.Fatal(err)
			}
			request, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+addr, nil)
			request.Header = handshake()
			_ = request.Write(c)
			in := bufio.NewReader(c)
			if response, err := http.ReadResponse(in, nil); err != nil || response.StatusCode != http.StatusSwitchingProtocols {
				t.Fatal(response, err)
			}
			theirs, err := io.ReadAll(in)
			_ = c.Close()
			if ours := append(append(AppendHead(nil, op, size), payload...), CloseNormal...); err != nil ||
				!bytes.Equal(ours, theirs) {
				t.Errorf("%d bytes: got %q..., want %q..., %v", size, ours[:min(12, len(ours))], theirs[:min(12, len(theirs))], err)
			}
		}
	}
}

// frame is one as a client sends it.
func frame(first byte, payload string) string {
	b := []byte{first}
	switch n := len(payload); {
	case n <= 125:
		b = append(b, 0x80|byte(n))
	case n <= 65535:
		b = binary.BigEndian.AppendUint16(append(b, 0x80|126), uint16(n))
	default:
		b = binary.BigEndian.AppendUint64(append(b, 0x80|127), uint64(n))
	}
	mask := [4]byte{1, 2, 3, 4}
	b = append(b, mask[:]...)
	for i := range len(payload) {
		b = append(b, payload[i]^mask[i%4])
	}
	return string(b)
}

// answers is what a server sends to a client that sends so much and leaves.
func answers(sent string) (answer []byte, err error) {
	r := NewReader(strings.NewReader(sent))
	for {
		payload, err := r.Ping()
		if err != nil {
			return append(answer, CloseFrames(err)...), err
		}
		answer = AppendPong(answer, payload)
	}
}

// hostile is what clients send, whole frames only.
var hostile = map[string]string{
	"nothing":                      "",
	"a ping":                       frame(0x89, "hello"),
	"an empty ping":                frame(0x89, ""),
	"pings among the frames":       frame(0x81, "x") + frame(0x89, "a") + frame(0x8a, "unasked") + frame(0x89, "b"),
	"a ping in a fragment":         frame(0x01, "x") + frame(0x89, "a") + frame(0x80, "y"),
	"a continuation of nothing":    frame(0x80, "x") + frame(0x89, "a"),
	"a long ping":                  frame(0x89, strings.Repeat("p", 200)) + frame(0x89, "a"),
	"a longer ping":                frame(0x89, strings.Repeat("p", 70000)) + frame(0x89, "a"),
	"a fragment of a ping":         frame(0x09, "a"),
	"opcodes that are not defined": frame(0x83, "x") + frame(0x8f, "x") + frame(0x89, "a"),
	"reserved bits":                frame(0xf1, "x") + frame(0xf9, "a"),
	"a large message":              frame(0x82, strings.Repeat("m", 1<<20)) + frame(0x89, "a"),
	"a close frame":                frame(0x89, "a") + frame(0x88, "\x03\xe8") + frame(0x89, "b"),
	"an empty close frame":         frame(0x88, ""),
	"a close frame with a reason":  frame(0x88, "\x03\xe9bye"),
	"a frame without a mask":       frame(0x89, "a") + "\x89\x01b" + frame(0x89, "c"),
	"a close frame without a mask": "\x88\x02\x03\xe8",
	"a length with its first bit":  "\x89\xff\x80\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x00x" + frame(0x89, "a"),
	"half a head":                  frame(0x89, "a") + "\x81",
	"half a ping":                  frame(0x89, "a") + frame(0x89, "hello")[:8],
	"half a long ping":             frame(0x89, strings.Repeat("p", 200))[:150],
	"a message that is too long":   "\x82\xff\x00\x00\x00\x00\x02\x00\x00\x01\x00\x00\x00\x00" + frame(0x89, "a"),
}

// What clients send is answered as kube-apiserver answers it.
func TestReaderAsKubeAPIServers(t *testing.T) {
	for name, sent := range hostile {
		theirs := theirAnswers(t, sent)
		if ours, _ := answers(sent); !bytes.Equal(ours, theirs) {
			t.Errorf("%s:\ngot  %q\nwant %q", name, ours, theirs)
		}
	}
}

// duplex is a connection whose directions are not related.
type duplex struct {
	io.Reader
	io.Writer
}

func (duplex) Close() error { return nil }

// theirAnswers is answers of golang.org/x/net, read as kube-apiserver reads: what comes is ignored
// up to the first error.
func theirAnswers(t testing.TB, sent string) []byte {
	t.Helper()
	var out bytes.Buffer
	h := hijacked{ResponseWriter: httptest.NewRecorder(), conn: duplexConn{duplex{strings.NewReader(sent), &out}}}
	request := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/x", nil)
	request.Header = handshake()
	xnet.Handler(func(ws *xnet.Conn) {
		out.Reset() // of the handshake
		var data []byte
		for xnet.Message.Receive(ws, &data) == nil {
		}
		_ = ws.Close()
	}).ServeHTTP(h, request)
	return out.Bytes()
}

type duplexConn struct{ duplex }

func (duplexConn) LocalAddr() net.Addr              { return nil }
func (duplexConn) RemoteAddr() net.Addr             { return nil }
func (duplexConn) SetDeadline(time.Time) error      { return nil }
func (duplexConn) SetReadDeadline(time.Time) error  { return nil }
func (duplexConn) SetWriteDeadline(time.Time) error { return nil }

type hijacked struct {
	http.ResponseWriter
	conn net.Conn
}

func (h hijacked) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return h.conn, bufio.NewReadWriter(bufio.NewReader(h.conn), bufio.NewWriter(h.conn)), nil
}

// What a client sends without end is not held.
func TestReaderHoldsLittle(t *testing.T) {
	flood := io.MultiReader(strings.NewReader("\x8a\xff\x7f\xff\xff\xff\xff\xff\xff\xff\x00\x00\x00\x00"),
		io.LimitReader(zeros{}, 256<<20))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if _, err := NewReader(flood).Ping(); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
	runtime.ReadMemStats(&after)
	if got := after.TotalAlloc - before.TotalAlloc; got > 64<<10 {
		t.Errorf("%d bytes were allocated", got)
	}
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) {
	clear(b)
	return len(b), nil
}

// FuzzReader compares the answers to whatever a client sends with those of golang.org/x/net.
func FuzzReader(f *testing.F) {
	for _, sent := range hostile {
		if len(sent) < 1<<16 {
			f.Add(sent)
		}
	}
	f.Fuzz(func(t *testing.T, sent string) {
		ours, err := answers(sent)
		if err == nil {
			t.Fatal("it has no end")
		}
		if theirs := theirAnswers(t, sent); !bytes.Equal(ours, theirs) {
			t.Fatalf("%q:\ngot  %q\nwant %q", sent, ours, theirs)
		}
	})
}
