package http1

import (
	"errors"
	"net"
	"time"

	"github.com/valyala/fasthttp"

	"spillway/internal/clientconn"
)

// hijack takes the connection of ctx from fasthttp, which answers nothing then. Exactly one of
// the functions is called: take, by a goroutine of its own, or lost, if the connection is closed
// first. fasthttp does not report that.
func hijack(ctx *fasthttp.RequestCtx, take func(net.Conn), lost func()) {
	below := clientconn.PacedConnOf(ctx.Conn())
	if below != nil {
		below.OnLost(lost)
	}
	ctx.HijackSetNoResponse(true)
	ctx.Hijack(func(c net.Conn) {
		if below != nil && !below.TakeOver() {
			return
		}
		take(c)
	})
}

// hijackedConn is how fasthttp hands a connection over.
type hijackedConn interface{ UnsafeConn() net.Conn }

// unwrapHijacked is a hijacked connection without what its server reads it by. Nothing of it may be
// left to be read there.
func unwrapHijacked(hijacked net.Conn) net.Conn {
	if h, ok := hijacked.(hijackedConn); ok {
		hijacked = h.UnsafeConn()
	}
	return unwrapHeadConn(hijacked)
}

// earlyBytesLimit is far more than is read of a connection ahead of a request's end: fasthttp's
// buffer, and the rest of a TLS record.
const earlyBytesLimit = 64 << 10

var errSentEarly = errors.New("the client sent too much before it had the answer to its request")

// earlyBytes is what was read of a connection that was taken from fasthttp, beyond the request.
func earlyBytes(taken net.Conn) ([]byte, error) {
	if err := taken.SetReadDeadline(time.Unix(1, 0)); err != nil {
		return nil, err
	}
	var early []byte
	for piece := make([]byte, 512); ; {
		n, _ := taken.Read(piece) // what is here already: with that deadline nothing is read of the socket
		if early = append(early, piece[:n]...); n == 0 {
			return early, taken.SetReadDeadline(time.Time{})
		}
		if len(early) > earlyBytesLimit {
			return nil, errSentEarly
		}
	}
}
