package serve

import (
	"net"

	"github.com/valyala/fasthttp"
)

// hijack takes the connection of ctx away from fasthttp, which answers nothing then. Exactly one of the functions is called: take, by a
// goroutine of its own, or lost, if the connection is closed before; fasthttp says nothing of that.
func hijack(ctx *fasthttp.RequestCtx, take func(net.Conn), lost func()) {
	below := pacer(ctx.Conn())
	if below != nil {
		below.onLost(lost)
	}
	ctx.HijackSetNoResponse(true)
	ctx.Hijack(func(c net.Conn) {
		if below != nil && !below.takeOver() {
			return
		}
		take(c)
	})
}
