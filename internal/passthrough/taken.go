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

// takenConn is a client's connection that was taken from its server for one exchange. It ends with
// the answer: what follows the request on it is no request (DEV-11).
type takenConn struct {
	conn   net.Conn
	in     io.Reader     // reads conn, and first what was read of it ahead
	chunks *bufio.Reader // the same reader, if the body is in chunks, else nil
}

// takeOver has the connection of x taken from its server once x has its turn, and leaves x to the
// goroutine that serves it then. The server can answer requests without a body and with one at
// hand, and no others: it has another idea of chunks than upstream, reads ahead, and stops at an
// upgrade. takeOver returns the answer if x does not go.
func (x *exchange) takeOver(r HTTP1Request) (refusal *apistatus.Answer) {
	if x.in.body == bodyStreamed && !x.isProven {
		x.whileArriving(func() { refusal = x.awaitPermit() })
	} else {
		refusal = x.awaitPermit()
	}
	if refusal != nil {
		return refusal
	}
	var start []byte
	if x.in.contentLength > 0 {
		var err error
		if start, err = r.BodyStart(x.in.contentLength); err != nil {
			return x.earlyEndAnswer()
		}
	}
	x.large = r.ShareHead()
	x.handover.Store(true)
	r.Hijack(func(c net.Conn, in io.Reader) {
		if !x.handover.CompareAndSwap(true, false) {
			_ = c.Close() // aborted meanwhile
			return
		}
		t := &takenConn{conn: c, in: in}
		if x.in.contentLength < 0 {
			t.chunks = bufio.NewReaderSize(in, trailerBytesLimit)
			t.in = t.chunks
		}
		go x.serveTaken(t, start)
	}, func() {
		if x.handover.CompareAndSwap(true, false) {
			x.end()
		}
	})
	return nil
}

// serveTaken serves the one exchange of a connection, and closes it. start is what the server has
// read of a body of known length.
func (x *exchange) serveTaken(t *takenConn, start []byte) {
	whole := false // the answer was sent to its end
	defer func() {
		if p := recover(); p != nil {
			x.f.log.Error("BUG: panic while passing a request through", PanicField(p), zap.Stack("stack"))
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
	x.prepareBody(t, start)
	resp, err := x.roundTrip(x.request(nil), func(code int, h http.Header) {
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
	if x.in.class.isShort() || endsSoon(resp) {
		x.setPace()
	}
	whole = writeAnswer(t.conn, x.in, resp) == nil
}

// prepareBody makes the body of a request on a taken connection, if it has one. Once all of it has
// arrived, a client that leaves cancels x (W-253).
func (x *exchange) prepareBody(t *takenConn, start []byte) {
	if x.in.body == bodyNone {
		x.watchClient()
		return
	}
	x.body = &clientBody{
		setDeadline: t.conn.SetReadDeadline,
		stop:        func() { _ = t.conn.SetReadDeadline(time.Unix(1, 0)) }, // fails on a closed connection, as the Read does
		onEnd:       x.watchClient,
	}
	if t.chunks != nil {
		x.body.from = newChunkedBody(t.chunks)
	} else {
		x.body.from = &sizedBody{io.MultiReader(bytes.NewReader(start), t.in), x.in.contentLength}
	}
	x.limitArrival()
}

// setPace evicts the client from now on if it takes nothing for the stall timeout.
func (x *exchange) setPace() {
	if p := clientconn.PacedConnOf(x.conn); p != nil {
		_ = p.SetPace(x.f.opts.StallTimeout, 0) // fails on a closed connection, as the answer will
	}
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
	dropHopByHop(resp.Header)
	resp.Header["Connection"], resp.Header["Upgrade"] = []string{"Upgrade"}, []string{protocol}
	if writeAnswer(t.conn, x.in, resp) != nil {
		return false
	}
	upstream := resp.Body.(io.ReadWriteCloser)
	defer context.AfterFunc(x.ctx, func() { _ = upstream.Close() })()
	var sending sync.WaitGroup
	sending.Go(func() {
		half, ok := upstream.(clientconn.HalfCloser)
		if _, err := copyAll(upstream, t.in); err != nil || !ok || half.CloseWrite() != nil {
			_ = upstream.Close()
		}
	})
	_, err := copyAll(t.conn, upstream)
	_ = upstream.Close()
	_ = t.conn.SetReadDeadline(time.Unix(1, 0)) // fails on a closed connection, as the read does
	sending.Wait()
	return err == nil
}
