package passthrough

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"testing/iotest"
	"time"
)

// chunkedBodies are bodies in chunks, and what follows them.
var chunkedBodies = []string{
	"2\r\nhi\r\n0\r\n\r\nnext",
	"2\r\nhi\r\n3\r\n you\r\n0\r\nX: 1\r\nY: 2\r\n\r\nnext",
	"0\r\n\r\n",
	"2;a=b\r\nhi\r\n0;c\r\n\r\n",
	"2\r\nhi!\r\n0\r\n\r\n",
	"2\r\nhi\r\n0\r\n X: 1\r\n\r\n",
	"2\r\nhi\r\n0\r\nX\r\n\r\n",
	"2\r\nhi\r\n0\r\nX: 1\n\n",
	"2\r\nhi\r\n0\r\nX: 1\r\n",
	"2\r\nhi\r\n0\r\n",
	"2\r\nhi",
	"2\r\nhi\r\n0\r\nX: " + strings.Repeat("x", 2*trailerBytesLimit) + "\r\n\r\n",
	"2\r\nhi\r\n0\r\n" + strings.Repeat("X: 1\r\n", trailerBytesLimit) + "\r\n",
	"1;" + strings.Repeat("a", 2*trailerBytesLimit) + "\r\nx\r\n0\r\n\r\n",
	"ffffffffffffffff\r\nhi\r\n0\r\n\r\n",
}

// asUpstream reads a body in chunks as net/http's server does, and what follows it.
func asUpstream(raw io.Reader) (body, rest []byte, err error) {
	head := strings.NewReader("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n")
	in := bufio.NewReader(io.MultiReader(head, raw))
	r, err := http.ReadRequest(in)
	if err != nil {
		return nil, nil, err
	}
	if body, err = io.ReadAll(r.Body); err != nil {
		return nil, nil, err
	}
	rest, err = io.ReadAll(in)
	return body, rest, err
}

func checkChunkedBody(t *testing.T, raw string) {
	t.Helper()
	in := bufio.NewReaderSize(iotest.OneByteReader(strings.NewReader(raw)), trailerBytesLimit)
	got, err := io.ReadAll(newChunkedBody(in))
	if err != nil {
		return // a request that is refused here is no other one upstream
	}
	rest, _ := io.ReadAll(in)
	want, wantRest, err := asUpstream(strings.NewReader(raw))
	if err != nil || !bytes.Equal(got, want) || !bytes.Equal(rest, wantRest) {
		t.Errorf("%.100q is %q and %q, upstream reads %q and %q, %v", raw, got, rest, want, wantRest, err)
	}
}

func TestChunkedBodiesAreReadAsUpstreamReadsThem(t *testing.T) {
	for i, raw := range chunkedBodies {
		checkChunkedBody(t, raw)
		_, err := io.ReadAll(newChunkedBody(bufio.NewReaderSize(strings.NewReader(raw), trailerBytesLimit)))
		_, _, upstream := asUpstream(strings.NewReader(raw))
		if (err == nil) != (upstream == nil) {
			t.Errorf("body %d: %v, upstream %v", i, err, upstream)
		}
	}
}

func FuzzChunkedBody(f *testing.F) {
	for _, raw := range chunkedBodies {
		f.Add(raw)
	}
	f.Fuzz(checkChunkedBody)
}

func TestSizedBodiesEndWhereTheySay(t *testing.T) {
	from := strings.NewReader("hello, next")
	if got, err := io.ReadAll(&sizedBody{from, 5}); err != nil || string(got) != "hello" || from.Len() != 6 {
		t.Errorf("%q, %v, %d bytes are left", got, err, from.Len())
	}
	if _, err := io.ReadAll(&sizedBody{strings.NewReader("hell"), 5}); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("a body that ends early: %v", err)
	}
}

// Once a body is closed, nothing reads of the client any more, and its end is no fault of the
// client's.
func TestClosedBodyIsNotRead(t *testing.T) {
	from, client := io.Pipe()
	b := &clientBody{from: from, setDeadline: func(time.Time) error { return nil },
		stop: func() { _ = client.CloseWithError(os.ErrDeadlineExceeded) }}
	read := make(chan error)
	go func() {
		_, err := b.Read(make([]byte, 1))
		read <- err
		_, err = b.Read(make([]byte, 1))
		read <- err
	}()
	go func() { _, _ = client.Write([]byte("x")) }()
	if err := <-read; err != nil {
		t.Errorf("the first byte: %v", err)
	}
	_ = b.Close()
	if err := <-read; err == nil || b.broken.Load() || b.complete.Load() {
		t.Errorf("a read of a closed body: %v, broken %t, whole %t", err, b.broken.Load(), b.complete.Load())
	}
}

func TestAcceptedTokensAreRemembered(t *testing.T) {
	tokens := newAcceptedTokens()
	bearing := func(token string) http.Header { return http.Header{"Authorization": {"Bearer " + token}} }
	browser := http.Header{"Sec-Websocket-Protocol": {WebSocketBearer + "eA"}}
	for _, h := range []http.Header{bearing("known"), browser, {}, {"Authorization": {"Basic eA"}}} {
		tokens.addToken(h)
	}
	for name, c := range map[string]struct {
		h    http.Header
		want bool
	}{
		"a token that upstream accepted":               {bearing("known"), true},
		"another token":                                {bearing("made-up"), false},
		"a token where upstream may not look for one":  {browser, false},
		"no credentials":                               {http.Header{}, false},
		"credentials of another kind":                  {http.Header{"Authorization": {"Basic eA"}}, false},
		"an accepted token behind one that is made up": {http.Header{"Authorization": {"Bearer x", "Bearer known"}}, false},
	} {
		if got := tokens.hasToken(c.h); got != c.want {
			t.Errorf("%s: accepted %t, want %t", name, got, c.want)
		}
	}
}
