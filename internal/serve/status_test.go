package serve

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/valyala/fasthttp"
	"go.uber.org/zap"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"spillway/internal/apistatus"
	"spillway/internal/clientconn"
	"spillway/internal/h2"
	"spillway/internal/http1"
)

const failure = `{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":`

// responder answers an HTTP/1.1 request.
func responder(ctx *fasthttp.RequestCtx) apistatus.Responder {
	return http1.New(http1.ServerOptions{}).CallOf(ctx)
}

// readOverHTTP2 is what a client of HTTP/2 reads of an answer.
func readOverHTTP2(t *testing.T, a *apistatus.Answer) (*http.Response, string) {
	t.Helper()
	near, far := net.Pipe()
	defer far.Close()
	go h2.New(near, h2.Options{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			out := clientconn.NewPacedWriter(w.(*h2.Response), nil, 0)
			defer out.Close()
			a.Write(clientconn.NetResponder{Writer: out, RequestFields: r.Header})
		}),
		Log: zap.NewNop(), MaxStreams: 1, MaxHeader: 8 << 10, Window: 64 << 10,
		Quiet: time.Minute, Pong: time.Minute, Idle: time.Minute,
	}).Serve()
	client := &http.Transport{Protocols: new(http.Protocols),
		DialContext: func(context.Context, string, string) (net.Conn, error) { return far, nil }}
	client.Protocols.SetUnencryptedHTTP2(true)
	defer client.CloseIdleConnections()
	resp, err := client.RoundTrip(httptest.NewRequest(http.MethodGet, "http://spillway/", http.NoBody))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(body)
}

func TestFailuresHaveTheBodiesOfTheAPIServer(t *testing.T) {
	f := func(s *metav1.Status, body string, headers map[string]string) {
		t.Helper()
		if got := string(apistatus.Body(s)); got != failure+body+"\n" {
			t.Errorf("body\n got %swant %s", got, failure+body)
		}
		answered, answer := readOverHTTP2(t, apistatus.Failure(s))
		var ctx fasthttp.RequestCtx
		apistatus.Failure(s).Write(responder(&ctx))
		if answered.StatusCode != int(s.Code) || ctx.Response.StatusCode() != int(s.Code) ||
			answer != string(ctx.Response.Body()) {
			t.Errorf("the two writers differ: %d %s, %d %s", answered.StatusCode, answer,
				ctx.Response.StatusCode(), ctx.Response.Body())
		}
		for _, key := range []string{"Retry-After", "X-Content-Type-Options"} {
			got, again := answered.Header.Get(key), string(ctx.Response.Header.Peek(key))
			if got != headers[key] || again != got {
				t.Errorf("%s: %s is %q and %q, want %q", body, key, got, again, headers[key])
			}
		}
	}
	nosniff := map[string]string{"X-Content-Type-Options": "nosniff"}
	f(apistatus.BadRequest(`strconv.ParseInt: parsing "abc": invalid syntax`),
		`"strconv.ParseInt: parsing \"abc\": invalid syntax","reason":"BadRequest","code":400}`, nil)
	f(apistatus.Unauthorized(), `"Unauthorized","reason":"Unauthorized","code":401}`, nil)
	f(apistatus.Forbidden(`forbidden: User "alice" cannot get path "/foo"`),
		`"forbidden: User \"alice\" cannot get path \"/foo\"","reason":"Forbidden","details":{},"code":403}`, nosniff)
	f(apistatus.NotReady(2),
		`"storage is (re)initializing","reason":"TooManyRequests","details":{"retryAfterSeconds":2},"code":429}`,
		map[string]string{"Retry-After": "2"})
	f(apistatus.BadGateway("x"), `"x","reason":"InternalError","code":502}`, nil)
	f(apistatus.ShuttingDown(),
		`"apiserver is shutting down","reason":"ServiceUnavailable","details":{"retryAfterSeconds":1},"code":503}`,
		map[string]string{"Retry-After": "1", "X-Content-Type-Options": "nosniff"})

	method := apistatus.New(http.StatusMethodNotAllowed, metav1.StatusReasonMethodNotAllowed,
		"the server does not allow this method on the requested resource", &metav1.StatusDetails{})
	if n := len(apistatus.Body(method)); n != 197 {
		t.Errorf("the 405 of W-173 has %d bytes, want 197", n)
	}
}

func TestStatusHeaders(t *testing.T) {
	server := passThroughServer(func(ctx *fasthttp.RequestCtx) {
		switch string(ctx.Path()) {
		case "/status":
			apistatus.Failure(apistatus.Unauthorized()).Write(responder(ctx))
		case "/many":
			apistatus.TooManyRequests(3).Write(responder(ctx))
		}
	})
	fr := serveFront(t, server)
	want := map[string]int{"/status": 401, "/many": 429}
	for path, code := range want {
		_, length := get(t, fr.client(t), "GET", fr.url()+path)
		for _, method := range []string{"GET", "HEAD"} {
			req, err := http.NewRequest(method, fr.url()+path, nil)
			if err != nil {
				t.Fatal(err)
			}
			resp, err := fr.client(t).Do(req)
			if err != nil {
				t.Fatal(err)
			}
			b, _ := io.ReadAll(resp.Body)
			_ = resp.Body.Close()
			if resp.StatusCode != code || resp.ContentLength != int64(len(length)) || (method == "HEAD") != (len(b) == 0) {
				t.Errorf("%s %s: %d, length %d, body %q", method, path, resp.StatusCode, resp.ContentLength, b)
			}
			if id, err := uuid.Parse(resp.Header.Get(apistatus.AuditIDHeader)); err != nil || id.Version() != 4 {
				t.Errorf("Audit-Id %q, %v; want a UUIDv4", resp.Header.Get(apistatus.AuditIDHeader), err)
			}
			if resp.Header.Get("Cache-Control") != "no-cache, private" || resp.Header.Get("Server") != "" ||
				resp.Header.Get("Date") == "" {
				t.Errorf("headers %v", resp.Header)
			}
		}
	}
	if got, _ := fr.send(t, "GET /status HTTP/1.1\r\nHost: a\r\naudit-id: mine\r\nConnection: close\r\n\r\n"); got != 401 {
		t.Errorf("got %d", got)
	}
	if got := apistatus.AuditIDFor("mine"); got != "mine" {
		t.Errorf("the client's own id became %q", got)
	}
}
