package http1

import (
	"bufio"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/valyala/fasthttp"

	"spillway/internal/passthrough"
)

// FuzzIdentityHeaders: the proxy reads a request's identity from fasthttp's view of it, and the
// headers that it sends upstream from the raw head. Both are equal in a request that is passed on,
// and in one that may be answered from memory.
func FuzzIdentityHeaders(f *testing.F) {
	for _, lines := range []string{
		"Authorization: Bearer a", "authorization:Bearer a\r\nAUTHORIZATION: Bearer b", "Authorization:\r\n Bearer a",
		"X: y\r\n Authorization: Bearer a",
		"X: y\r\n\tImpersonate-User: root", "Authorization: Bearer a\nImpersonate-User: b", "Authorization : Bearer a",
		" Authorization: Bearer a", "Authorization",
		"Impersonate_User: a", "Impersonate-User:", "impersonate-extra-A%2Fb: c", "Impersonate User: a",
		"Impersonate-User: a\r\nConnection: impersonate-user",
		"Connection: close, authorization", "Connection: keep-alive\r\nConnection: Authorization",
		"Authorization: Bearer a\rImpersonate-User: b", ": x\r\nAuthorization: a",
		"Trailer: Authorization", "Transfer-Encoding: chunked\r\nTrailer: Authorization", "Authorization: Bearer a \t ",
		"Authorization: Bearer\ta", "Sec-WebSocket-Protocol: a",
		"Authorization: Bearer a\r\n\r\nImpersonate-User: b", "X-Remote-User: a\r\nx-remote-user: b",
		"Cookie: a\r\nCookie: b\r\nAuthorization: c", "Host: b\r\nAuthorization: a",
		"Content-Type: a\r\nContent-Type: b", "Authorization:\x00a", "Author\x00ization: a", "Authorization\xff: a",
		"ConneCtion:Close ", "ConneCtion:Close,",
	} {
		f.Add(lines)
	}
	matters := func(key string) bool {
		return strings.HasPrefix(key, "X-Remote-") || key == "Connection" || key == "Sec-Websocket-Protocol" ||
			passthrough.IsIdentityHeader(key)
	}
	f.Fuzz(func(t *testing.T, lines string) {
		raw := "GET /api/v1/pods HTTP/1.1\r\nHost: a\r\n" + lines + "\r\n\r\n"
		ctx := &fasthttp.RequestCtx{}
		if err := ctx.Request.Header.Read(bufio.NewReaderSize(strings.NewReader(raw), 16<<10)); err != nil {
			return
		}
		in, err := passthrough.ReadInbound(fastRequest{ctx}.Head())
		c := Call{fastResponder: fastResponder{ctx: ctx}}
		if err != nil {
			if c.PlanRequest().Plain && len(c.Headers(passthrough.IsIdentityHeader)) > 0 {
				t.Logf("%q is read by fasthttp alone: %v", lines, err)
			}
			return
		}
		seen, sent := c.Headers(matters), http.Header{}
		for key, values := range in.Header {
			if matters(key) {
				sent[key] = values
			}
		}
		// such a request is passed on: only its identity must be equal
		if !c.PlanRequest().Plain && strings.Contains(lines, ":") {
			delete(seen, "Connection")
			delete(sent, "Connection")
		}
		for _, of := range []http.Header{seen, sent} {
			if values, there := of["Connection"]; there {
				of["Connection"] = options(values)
			}
		}
		if len(seen["Connection"]) == 0 && slices.Equal(sent["Connection"], []string{"close"}) {
			delete(sent, "Connection") // fasthttp keeps it elsewhere
		}
		if !maps.EqualFunc(seen, sent, slices.Equal[[]string]) {
			t.Errorf("%q: seen as %q, sent as %q", lines, seen, sent)
		}
	})
}

// options are those that a Connection header has: a list, in which an element may be empty, and no
// letter's case matters (RFC 9110, 5.6.1 and 7.6.1).
func options(values []string) []string {
	var all []string
	for _, value := range values {
		for option := range strings.SplitSeq(value, ",") {
			if option = strings.ToLower(strings.Trim(option, " \t")); option != "" {
				all = append(all, option)
			}
		}
	}
	return all
}
