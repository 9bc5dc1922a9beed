package passthrough

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"

	"spillway/internal/apistatus"
	"spillway/internal/clientconn"
)

// takenConn is a client's connection that was taken from its server for one exchange. What follows
// the request on it is no request (DEV-11): the connection ends with the answer.
type takenConn struct {
	conn   net.Conn
	in     io.Reader     // reads conn, with what was read of it ahead
	chunks *bufio.Reader // the same, if the body is in chunks, else nil
}

// takeOver takes the connection of a request from its server, which can answer requests with a body
// at hand and without, and no others: it has another idea of chunks than upstream, reads ahead, and
// stops at an upgrade.
func (f *Forwarder) takeOver(r HTTP1Request, x *exchange) (refusal *apistatus.Answer) {
	var start []byte
	if x.in.length > 0 {
		var err error
		if start, err = r.BodyStart(x.in.length); err != nil {
			return x.earlyEndAnswer()
		}
	}
	x.large = r.ShareHead()
	x.waiting.Store(true)
	r.Hijack(func(c net.Conn, in io.Reader) {
		if !x.waiting.CompareAndSwap(true, false) {
			_ = c.Close() // aborted meanwhile
			return
		}
		t := &takenConn{conn: c, in: in}
		if x.in.length < 0 {
			t.chunks = bufio.NewReaderSize(in, trailerBytesLimit)
			t.in = t.chunks
		}
		go f.serveTaken(t, x, start)
	}, func() {
		if x.waiting.CompareAndSwap(true, false) {
			x.end()
		}
	})
	return nil
}

// serveTaken serves the one exchange of a connection, and closes it. start is what the server has
// read of a body of known length.
func (f *Forwarder) serveTaken(t *takenConn, x *exchange, start []byte) {
	whole := false // the answer was sent to its end
	defer func() {
		if p := recover(); p != nil {
			f.log.Error("BUG: panic while passing a request through", PanicField(p), zap.Stack("stack"))
			whole = false
		}
		x.end()
		if x.body != nil {
			_ = x.body.Close() // none fails
		}
		switch {
		case !whole:
			clientconn.ResetConn(t.conn)
		case x.code == http.StatusSwitchingProtocols, x.body != nil && !x.body.complete.Load():
			clientconn.Linger(t.conn, t.in)
		default:
			_ = t.conn.Close() // the client has left, or has all of the answer
		}
	}()
	resp, err := x.roundTrip(x.request(nil), x.takenBody(t, start), func(code int, h http.Header) {
		writeEarlyHead(t.conn, x.in, code, h)
	})
	if err == nil {
		defer resp.Body.Close()
		if resp.StatusCode == http.StatusSwitchingProtocols {
			if err = x.checkSwitch(resp); err == nil {
				whole = x.switchProtocols(t, resp)
				return
			}
		}
	}
	if err != nil {
		resp = &http.Response{Header: http.Header{}}
		x.failureAnswer(err).Write(composedAnswer{x.in, resp})
	}
	if x.class.isShort() || ends(resp) {
		x.setPace()
	}
	whole = writeAnswer(t.conn, x.in, resp) == nil
}

// mustArrive reports that the body of the request must have come by a time: it has one answer, or
// upgrades its connection. An upgrade begins behind the body, and on the connections that it takes
// upstream sends not even its refusal until then.
func (x *exchange) mustArrive() bool { return x.class.isShort() || x.in.upgrade != "" }

// takenBody is the body of a request on a taken connection; nil: it has none. Once all of it has
// come, a client that leaves cancels x (W-253).
func (x *exchange) takenBody(t *takenConn, start []byte) *clientBody {
	if x.in.length == 0 {
		x.watchClient()
		return nil
	}
	b := &clientBody{
		setDeadline: t.conn.SetReadDeadline,
		stop:        func() { _ = t.conn.SetReadDeadline(time.Unix(1, 0)) }, // fails on a closed connection, as the Read does
		onEnd:       x.watchClient,
	}
	if t.chunks != nil {
		b.from = newChunkedBody(t.chunks)
	} else {
		b.from = &sizedBody{io.MultiReader(bytes.NewReader(start), t.in), x.in.length}
	}
	if x.mustArrive() {
		_ = b.setDeadline(time.Now().Add(x.f.Opts.Arrivals.Passed)) // fails on a closed connection, as reading it will
	}
	return b
}

// setPace has the client take what is sent from now on at no less than a pace.
func (x *exchange) setPace() {
	if p := clientconn.PacedConnOf(x.conn); p != nil {
		_ = p.SetPace(x.f.Opts.StallTimeout, 0) // fails on a closed connection, as the answer will
	}
}

// earlyEndAnswer ends x, whose body did not come, and returns the answer.
func (x *exchange) earlyEndAnswer() *apistatus.Answer {
	x.endWith(codeClientGone)
	a := apistatus.Failure(apistatus.BadRequest("the request body ended early"))
	a.HangUp = true
	return a
}

var errWrongProtocol = errors.New("upstream switched to another protocol than the client asked for")

// checkSwitch returns why the client cannot have the protocol that upstream switched to, or nil.
func (x *exchange) checkSwitch(resp *http.Response) error {
	_, both := resp.Body.(io.ReadWriteCloser)
	if !both || x.in.upgrade == "" || !strings.EqualFold(upgradeProtocol(resp.Header), x.in.upgrade) ||
		x.body != nil && !x.body.complete.Load() {
		return errWrongProtocol
	}
	return nil
}

// switchProtocols answers with upstream's 101 and then copies both ways until upstream ends. The
// end of the client's direction is passed on, as a direction may end alone; after the end of
// upstream's, nothing is left to answer. It reports whether that end was a clean one.
func (x *exchange) switchProtocols(t *takenConn, resp *http.Response) bool {
	upgrades := x.f.metrics.upgrades
	upgrades.Inc()
	defer upgrades.Dec()
	x.stopWatchingClient() // reading it tells
	protocol := upgradeProtocol(resp.Header)
	responseHeader(resp.Header)
	resp.Header["Connection"], resp.Header["Upgrade"] = []string{"Upgrade"}, []string{protocol}
	if writeAnswer(t.conn, x.in, resp) != nil {
		return false
	}
	upstream := resp.Body.(io.ReadWriteCloser)
	defer context.AfterFunc(x.ctx, func() { _ = upstream.Close() })()
	var sending sync.WaitGroup
	sending.Go(func() {
		half, ok := upstream.(clientconn.HalfCloser)
		if copyAll(upstream, t.in) != nil || !ok || half.CloseWrite() != nil {
			_ = upstream.Close()
		}
	})
	err := copyAll(t.conn, upstream)
	_ = upstream.Close()
	_ = t.conn.SetReadDeadline(time.Unix(1, 0)) // fails on a closed connection, as the read does
	sending.Wait()
	return err == nil
}

// copyAll copies to the end of from.
func copyAll(to io.Writer, from io.Reader) error {
	buffer := copyBuffers.Get().(*[32 << 10]byte)
	defer copyBuffers.Put(buffer)
	// Hides ReaderFrom and WriterTo, which may use a buffer of their own.
	_, err := io.CopyBuffer(struct{ io.Writer }{to}, struct{ io.Reader }{from}, buffer[:])
	return err
}
