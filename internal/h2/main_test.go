package h2

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"go.uber.org/zap"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(eachKind{m}) }

// eachKind runs the tests with connections that have goroutines, and with those that have none.
type eachKind struct{ m *testing.M }

// Run implements goleak.TestingM.
func (k eachKind) Run() int {
	if fuzzing := flag.Lookup("test.fuzz").Value.String(); fuzzing != "" {
		nonblocking = true
		return k.m.Run()
	}
	code := k.m.Run()
	nonblocking = true
	return max(code, k.m.Run())
}

// patience is how long a test waits for what must happen.
const patience = 2 * time.Minute

// client is one that shows every frame, and sends none by itself. Between it and its server there
// is a pipe, which keeps nothing: what the client has not read, the server has not sent.
type client struct {
	testing.TB
	net    net.Conn
	conn   *Conn
	framer *http2.Framer
	block  bytes.Buffer
	enc    *hpack.Encoder
	served chan struct{} // closed when Serve has returned
}

// options are those of most tests.
func options(h http.HandlerFunc) Options {
	return Options{
		Handler: h, Log: zap.NewNop(), MaxStreams: 4, Window: 64 << 10, MaxHeader: 8 << 10,
		Quiet: time.Hour, Pong: time.Hour, Idle: time.Hour,
	}
}

// silent connects a client that has yet to say anything.
func silent(t testing.TB, opts Options) *client {
	t.Helper()
	mine, theirs := net.Pipe()
	served := make(chan struct{})
	opts.Ended = func() { close(served) }
	c := &client{TB: t, net: mine, conn: newConn(theirs, opts), framer: http2.NewFramer(mine, mine), served: served}
	c.enc = hpack.NewEncoder(&c.block)
	c.framer.ReadMetaHeaders = hpack.NewDecoder(tableSize, nil)
	c.framer.SetMaxReadFrameSize(1 << 20)
	c.must(mine.SetDeadline(time.Now().Add(patience)))
	go c.conn.Serve()
	t.Cleanup(func() {
		_ = mine.Close()
		c.await(c.served, "Serve")
	})
	return c
}

// connect connects a client and has greeted: what comes next are answers.
func connect(t testing.TB, opts Options, settings ...http2.Setting) *client {
	t.Helper()
	c := silent(t, opts)
	_, err := io.WriteString(c.net, http2.ClientPreface)
	c.must(err)
	c.must(c.framer.WriteSettings(settings...))
	c.until("SETTINGS ack")
	c.must(c.framer.WriteSettingsAck())
	return c
}

// bubble runs a test whose time passes only when nothing else is left to do, so that it is about
// times and not about how fast the machine is.
func bubble(t *testing.T, f func(*testing.T)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, f)
}

func (c *client) must(err error) {
	c.Helper()
	if err != nil {
		c.Fatal(err)
	}
}

func (c *client) await(done <-chan struct{}, what string) {
	c.Helper()
	select {
	case <-done:
	case <-time.After(patience):
		c.Fatalf("%s did not happen", what)
	}
}

// eventually waits for what no frame tells.
func (c *client) eventually(what string, is func() bool) {
	c.Helper()
	for end := time.Now().Add(patience); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			c.Fatalf("%s did not happen", what)
		}
	}
}

// locked looks at the connection.
func (c *client) locked(look func(*Conn) bool) bool {
	c.conn.mu.Lock()
	defer c.conn.mu.Unlock()
	return look(c.conn)
}

// head sends a head of "name", "value", ... fields; what is missing of a GET's pseudo headers is
// added.
func (c *client) head(id uint32, end bool, fields ...string) {
	c.Helper()
	var pseudo []string
	for _, f := range []string{":method", "GET", ":scheme", "https", ":authority", "host", ":path", "/"} {
		if strings.HasPrefix(f, ":") && !slices.Contains(fields, f) {
			pseudo = append(pseudo, f, map[string]string{":method": "GET", ":scheme": "https", ":authority": "host",
				":path": "/"}[f])
		}
	}
	c.raw(id, end, append(pseudo, fields...)...)
}

// raw sends a head, or a trailer, of these fields alone.
func (c *client) raw(id uint32, end bool, fields ...string) {
	c.Helper()
	c.block.Reset()
	for i := 0; i < len(fields); i += 2 {
		c.must(c.enc.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]}))
	}
	block := c.block.Bytes()
	first := block[:min(len(block), minFrame)]
	block = block[len(first):]
	c.must(c.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: first, EndStream: end,
		EndHeaders: len(block) == 0}))
	for len(block) > 0 {
		next := block[:min(len(block), minFrame)]
		block = block[len(next):]
		c.must(c.framer.WriteContinuation(id, len(block) == 0, next))
	}
}

func (c *client) get(id uint32, path string) { c.head(id, true, ":path", path) }

func (c *client) data(id uint32, text string, end bool) {
	c.Helper()
	c.must(c.framer.WriteData(id, end, []byte(text)))
}

// read describes the next frame in a few words, or says why there is none. Long data is given as
// its length.
func (c *client) read() (string, error) {
	frame, err := c.framer.ReadFrame()
	if err != nil {
		return "", err
	}
	end := ""
	if f := frame.Header().Flags; f.Has(http2.FlagDataEndStream) && frame.Header().Type != http2.FramePing {
		end = " END"
	}
	id := frame.Header().StreamID
	switch f := frame.(type) {
	case *http2.SettingsFrame:
		if f.IsAck() {
			return "SETTINGS ack", nil
		}
		return "SETTINGS", nil
	case *http2.WindowUpdateFrame:
		return fmt.Sprintf("WINDOW_UPDATE %d %d", id, f.Increment), nil
	case *http2.MetaHeadersFrame:
		text := fmt.Sprintf("HEADERS %d", id)
		for _, field := range f.Fields {
			if field.Name != "date" {
				text += fmt.Sprintf(" %s=%s", strings.TrimPrefix(field.Name, ":"), field.Value)
			}
		}
		return text + end, nil
	case *http2.DataFrame:
		if len(f.Data()) > 100 {
			return fmt.Sprintf("DATA %d (%d)%s", id, len(f.Data()), end), nil
		}
		return fmt.Sprintf("DATA %d %q%s", id, f.Data(), end), nil
	case *http2.RSTStreamFrame:
		return fmt.Sprintf("RST_STREAM %d %v", id, f.ErrCode), nil
	case *http2.GoAwayFrame:
		return fmt.Sprintf("GOAWAY %d %v", f.LastStreamID, f.ErrCode), nil
	case *http2.PingFrame:
		if f.IsAck() {
			return fmt.Sprintf("PING ack %s", f.Data), nil
		}
		return "PING", nil
	}
	return fmt.Sprint(frame), nil
}

func (c *client) next() string {
	c.Helper()
	f, err := c.read()
	c.must(err)
	return f
}

// expect reads frames that must be the next ones.
func (c *client) expect(want ...string) {
	c.Helper()
	for _, w := range want {
		if got := c.next(); got != w {
			c.Fatalf("got  %s\nwant %s", got, w)
		}
	}
}

// until reads on to a frame that begins like this, and returns it.
func (c *client) until(prefix string) string {
	c.Helper()
	for {
		if f := c.next(); strings.HasPrefix(f, prefix) {
			return f
		}
	}
}

// reads reads n bytes of a stream's data, and returns how many frames they were.
func (c *client) reads(id uint32, n int) (frames int) {
	c.Helper()
	for n > 0 {
		frame, err := c.framer.ReadFrame()
		c.must(err)
		f, ok := frame.(*http2.DataFrame)
		if !ok || f.StreamID != id {
			c.Fatalf("%v while data was expected on %d", frame, id)
		}
		n -= len(f.Data())
		frames++
	}
	if n < 0 {
		c.Fatalf("%d bytes too many", -n)
	}
	return frames
}

// quiet checks that nothing else comes: the next is the answer to a ping.
func (c *client) quiet() {
	c.Helper()
	c.must(c.framer.WritePing(false, [8]byte([]byte("anything"))))
	c.expect("PING ack anything")
}

// over checks that the connection ends, perhaps after some last words.
func (c *client) over(words ...string) {
	c.Helper()
	c.expect(words...)
	if f, err := c.read(); !errors.Is(err, io.EOF) {
		c.Fatalf("%s, %v after the end", f, err)
	}
	c.await(c.served, "Serve")
}

// last reads the last words of a connection, and does not wait for its end.
func (c *client) last(words ...string) {
	c.Helper()
	c.expect(words...)
	_ = c.net.Close()
	c.await(c.served, "Serve")
}

func text(n int) string { return strings.Repeat("x", n) }
