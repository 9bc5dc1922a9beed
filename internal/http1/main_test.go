package http1

import (
	"strings"
	"testing"

	"spillway/internal/testutil"
)

func TestMain(m *testing.M) { testutil.VerifyServers(m) }

// cookieOf is a request whose head is a little longer than n bytes.
func cookieOf(n int) string {
	return "GET /x HTTP/1.1\r\nHost: localhost\r\nCookie: " + strings.Repeat("a", n) + "\r\n\r\n"
}
