package conformance

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"spillway/test/framework/exchange"
	"spillway/test/framework/process"
)

// webSocketCase is a watch over a WebSocket, and what its client sends.
type webSocketCase struct {
	rules  string
	query  string
	head   []string // more of the request's; "-Name" leaves one out
	by     exchange.Source
	events int    // after so many frames with events the client sends sent
	sent   string // empty: the watch ends by itself
}

// masked is a frame of a client, with a mask of zeros.
func masked(first byte, payload string) string {
	head := []byte{first, 0x80 | byte(len(payload))}
	if len(payload) > 125 {
		head = []byte{first, 0x80 | 126, byte(len(payload) >> 8), byte(len(payload))}
	}
	return string(append(head, 0, 0, 0, 0)) + payload
}

// closeFrame ends every WebSocket. After it either side may hang up as it likes.
const closeFrame = "\x88\x02\x03\xe8"

// testWebSocket watches over WebSockets: the same handshake and the same frames, from memory where
// the watch is (W-119 to W-123).
func (s *suite) testWebSocket(t *testing.T) {
	const (
		protobuf = "Accept: application/vnd.kubernetes.protobuf"
		metadata = "Accept: application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
		table    = "Accept: application/json" + asTable
	)
	bye := masked(0x88, "\x03\xe8")
	state := c1 + "?watch=1&timeoutSeconds=600&resourceVersion=0&fieldSelector=metadata.name%3Da"
	silent := "/api/v1/namespaces/none/configmaps?watch=1&timeoutSeconds=600&resourceVersion=${last}"
	for _, c := range []webSocketCase{
		{"W-119 W-120", c1 + "?watch=1&timeoutSeconds=1&resourceVersion=${first}", nil, memory, 0, ""},
		{"W-107 W-120", c1 + "?watch=1&timeoutSeconds=" + briefSeconds() + "&resourceVersion=1", nil, memory, 0, ""},
		{"W-119", c1 + "?watch=1&timeoutSeconds=1&resourceVersion=abc", nil, memory, 0, ""},
		{"W-120", state, nil, memory, 1, bye},
		{"W-101 W-120", c1 + "?watch=1&timeoutSeconds=600&fieldSelector=metadata.name%3Da" + informer, nil, memory, 2, bye},
		{"W-100 W-120", state + marked, nil, memory, 1, bye},
		{"W-120 W-132", state, []string{protobuf}, memory, 1, bye},
		{"W-107 W-120", c1 + "?watch=1&timeoutSeconds=" + briefSeconds() + "&resourceVersion=1", []string{protobuf}, memory,
			0, ""},
		{"W-118 W-120", state, []string{metadata}, memory, 1, bye},
		{"W-118 W-120", state, []string{protobuf + ";as=PartialObjectMetadata;g=meta.k8s.io;v=v1"}, memory, 1, bye},
		{"W-118 W-119", state, []string{table}, upstream, 1, bye},
		{"W-120", c1 + "?watch=1&timeoutSeconds=600&fieldSelector=metadata.name%3Da" + informer,
			[]string{"Accept-Encoding: gzip"}, memory, 2, bye},
		{"W-120", someWidgets + "?watch=1&timeoutSeconds=600&resourceVersion=0&fieldSelector=metadata.name%3Dw1",
			nil, memory, 1, bye},
		{"W-120", "/api/v1/namespaces/heavy/configmaps?watch=1&timeoutSeconds=600&resourceVersion=0", nil, memory, 40, bye},
		{"W-119", state, []string{"Sec-WebSocket-Protocol: base64.binary.k8s.io"}, memory, 1, bye},
		{"W-119", state, []string{"Sec-WebSocket-Protocol: any.thing"}, memory, 1, bye},
		{"W-119", state, []string{"Sec-WebSocket-Extensions: permessage-deflate"}, memory, 1, bye},
		{"W-119", state, []string{"Sec-WebSocket-Protocol: a, b"}, upstream, 0, ""},
		{"W-119", state, []string{"-Origin"}, upstream, 0, ""},
		{"W-119", state, []string{"-Sec-WebSocket-Key"}, upstream, 0, ""},
		{"W-119", state, []string{"-Sec-WebSocket-Version", "Sec-WebSocket-Version: 8"}, upstream, 0, ""},
		{"W-119", c1 + "?resourceVersion=0&fieldSelector=metadata.name%3Da", nil, upstream, 0, ""},
		{"W-121", silent, nil, memory, 0, bye},
		{"W-121", silent, nil, memory, 0, masked(0x88, "")},
		{"W-121", silent, nil, memory, 0, masked(0x88, "\x0f\xa0bye")},
		{"W-121", silent, nil, memory, 0, "\x89\x01a"},
		{"W-121", state, nil, memory, 1, "\x88\x02\x03\xe8"},
		{"W-122", silent, nil, memory, 0, masked(0x89, "a") + masked(0x89, "") + masked(0x89, "hello") + bye},
		{"W-122", silent, nil, memory, 0, masked(0x89, strings.Repeat("p", 300)) + bye},
		{"W-122", state, nil, memory, 1, masked(0x89, "a") + bye},
		{"W-122 W-123", silent, nil, memory, 0,
			masked(0x81, "text") + masked(0x8a, "unasked") + masked(0x01, "part") + masked(0x89, "a") + masked(0x80, "end") +
				bye},
		{"W-123", silent, nil, memory, 0, masked(0xf3, "reserved") + masked(0x8f, "reserved") + masked(0x89, "a") + bye},
		{"W-123", silent, nil, memory, 0, masked(0x82, strings.Repeat("m", 60_000)) + masked(0x89, "a") + bye},
		{"W-123", silent, nil, memory, 0, "\x82\xff\x00\x00\x00\x00\x02\x00\x00\x01\x00\x00\x00\x00"},
	} {
		if s.skew != nil && strings.Contains(c.query, marked) {
			continue // the lengths of frames differ by release
		}
		s.compareWebSockets(t, c)
	}
}

// compareWebSockets sends the same to the API server and to two proxies. The test fails unless all
// three answer the same, and from where the case says.
func (s *suite) compareWebSockets(t *testing.T, c webSocketCase) {
	t.Helper()
	ends := []*endpoint{s.direct, s.secure, s.plain}
	before := [2]int{s.secure.watches(t), s.plain.watches(t)}
	var answers [3][]byte
	asked := 0
	equal := func() bool { return bytes.Equal(answers[0], answers[1]) && bytes.Equal(answers[0], answers[2]) }
	// Again if one of them ran out of time; or if what passes through shows an age (N-5) or the
	// version of the store (N-1), which has changed in between.
	again := func() bool {
		return c.by == upstream && !equal() || oneBegins(answers[0], answers[1]) || oneBegins(answers[0], answers[2])
	}
	for attempt := 0; attempt == 0 || attempt < patient && again(); attempt++ {
		for i, e := range ends {
			answers[i] = e.overWebSocket(t, c, s.fill(c.query))
		}
		asked++
	}
	if !equal() {
		t.Errorf("%s %q %q:\n direct %q\n tls    %q\n plain  %q", c.query, c.head, exchange.Clip([]byte(c.sent)),
			exchange.Clip(answers[0]), exchange.Clip(answers[1]), exchange.Clip(answers[2]))
	}
	want := 0
	if late.Prompt() && c.by == memory && bytes.HasPrefix(answers[0], []byte("101")) {
		want = asked
	}
	process.Awaiting(t, "the watches served from memory", func(context.Context) error {
		if got := [2]int{s.secure.watches(t) - before[0], s.plain.watches(t) - before[1]}; got[0] < want || got[1] < want {
			return fmt.Errorf("%s %q: %d at the two proxies, want %d", c.query, c.head, got, want)
		}
		return nil
	})
	if equal() {
		s.show(t, c.rules, c.by)
	}
}

// overWebSocket is what comes of a handshake: how it is answered, and all frames up to the end.
func (e *endpoint) overWebSocket(t *testing.T, c webSocketCase, target string) []byte {
	t.Helper()
	head := []string{"GET " + target + " HTTP/1.1"}
	for _, line := range append([]string{"Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13",
		"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==", "Origin: http://example.com"}, c.head...) {
		name, _, _ := strings.Cut(line, ":")
		left := false
		for _, change := range c.head {
			left = left || change == "-"+name && !strings.HasPrefix(line, "Sec-WebSocket-Version: 8")
		}
		if !left && line[0] != '-' {
			head = append(head, line)
		}
	}
	conn := e.dial(t, "http/1.1")
	defer conn.Close()
	e.ask(t, conn, head...)
	in := bufio.NewReader(conn)
	response, err := http.ReadResponse(in, nil)
	must(t, err)
	if response.StatusCode != http.StatusSwitchingProtocols {
		body, err := io.ReadAll(response.Body)
		must(t, err)
		return append([]byte(response.Status+"\n"), body...)
	}
	out := fmt.Appendf(nil, "%s %q\n", response.Status, response.Header)
	for events, sent := 0, false; ; {
		if events == c.events && c.sent != "" && !sent {
			sent = true
			_, err := io.WriteString(conn, c.sent)
			must(t, err)
		}
		frame, err := readFrame(in)
		if err != nil {
			t.Errorf("%s: %s: after %q: %v", e.Name, target, exchange.Clip(out), err)
			return out
		}
		if out = append(out, withoutPromise(frame)...); string(frame) == closeFrame {
			return out
		}
		if frame[0]&0xf <= 2 {
			events++
		}
	}
}

// readFrame reads a frame of a server, head and all.
func readFrame(in *bufio.Reader) ([]byte, error) {
	frame := make([]byte, 2)
	if _, err := io.ReadFull(in, frame); err != nil {
		return nil, err
	}
	size := int(frame[1])
	if more := map[int]int{126: 2, 127: 8}[size]; more > 0 {
		size = 0
		for range more {
			b, err := in.ReadByte()
			if err != nil {
				return nil, err
			}
			frame, size = append(frame, b), size<<8|int(b)
		}
	}
	payload := make([]byte, size)
	_, err := io.ReadFull(in, payload)
	return append(frame, payload...), err
}

var promise = regexp.MustCompile(`("resourceVersion":)"\d+"`)

// withoutPromise is a frame without the version that a bookmark promises, which may differ.
func withoutPromise(frame []byte) []byte {
	if !bytes.Contains(frame, []byte(`{"type":"BOOKMARK"`)) {
		return frame
	}
	return promise.ReplaceAll(frame, []byte(`$1"N"`))
}

// oneBegins reports that one is the beginning of the other.
func oneBegins(a, b []byte) bool {
	a, b = bytes.TrimSuffix(a, []byte(closeFrame)), bytes.TrimSuffix(b, []byte(closeFrame))
	return len(a) != len(b) && (bytes.HasPrefix(a, b) || bytes.HasPrefix(b, a))
}
