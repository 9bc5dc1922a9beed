package http1

import (
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		// One goroutine per process, which keeps the Date header up to date and never ends.
		goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.updateServerDate.func1"),
		// A stopped server's cleaner of idle workers notices that within ten seconds.
		goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.(*workerPool).Start.func2"),
	)
}

// cookieOf is a request whose head is a little longer than n bytes.
func cookieOf(n int) string {
	return "GET /x HTTP/1.1\r\nHost: localhost\r\nCookie: " + strings.Repeat("a", n) + "\r\n\r\n"
}
