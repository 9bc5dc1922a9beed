package http1

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"reflect"
	"strings"
	"testing"

	"github.com/valyala/fasthttp"
)

// TestLongHeadsAreNotKept holds that a connection of HTTP/1.1 keeps nothing of a long head for its
// next request, and goes on.
func TestLongHeadsAreNotKept(t *testing.T) {
	t.Parallel()
	kept := make(chan int, 1)
	server := (&ListenerServer{}).newFastServer(OrdinaryHeadBytes)
	var last *fasthttp.RequestCtx
	server.Handler = func(ctx *fasthttp.RequestCtx) {
		if last != nil {
			t.Error("the request before has no end")
		}
		last = ctx
		headConnOf(ctx.Conn()).beginRequest(ctx)
		fmt.Fprint(ctx, len(ctx.Request.Header.RequestURI()), ctx.Request.Header.Len())
	}
	server.ConnState = func(c net.Conn, state fasthttp.ConnState) {
		followConnState(c, state)
		if state == fasthttp.StateIdle && last != nil {
			h := reflect.ValueOf(&last.Request.Header).Elem()
			n := h.FieldByName("h").Cap()*int(reflect.TypeFor[[2]string]().Size()) + h.FieldByName("rawHeaders").Cap() +
				h.FieldByName("requestURI").Cap()
			last = nil
			kept <- n
		}
	}
	near, far := net.Pipe()
	served := make(chan error, 1)
	go func() { served <- server.ServeConn(newHeadConn(near, nil, nil)) }()
	answers := bufio.NewReader(far)
	for _, c := range []struct {
		name, path, fields string
		most               int
	}{
		{"an ordinary one", "/", strings.Repeat("A: b\r\n", 20), 8 << 10},
		{"many fields", "/", strings.Repeat("A: b\r\n", 2000), 0},
		{"a long field", "/", "A: " + strings.Repeat("b", 14_000) + "\r\n", 0},
		{"a long path", "/" + strings.Repeat("a", 14_000), "", 0},
		{"an ordinary one again", "/", "A: b\r\n", 8 << 10},
	} {
		if _, err := fmt.Fprintf(far, "GET %s HTTP/1.1\r\nHost: localhost\r\n%s\r\n", c.path, c.fields); err != nil {
			t.Fatal(err)
		}
		answer, err := http.ReadResponse(answers, nil)
		if err != nil || answer.StatusCode != http.StatusOK {
			t.Fatalf("%s: %v, %v", c.name, answer, err)
		}
		_ = answer.Body.Close()
		if n := <-kept; n > c.most {
			t.Errorf("%s: %d bytes are kept, not %d", c.name, n, c.most)
		}
	}
	_ = far.Close()
	if err := <-served; err != nil {
		t.Error(err)
	}
}
