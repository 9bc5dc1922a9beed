package apistatus

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// answer is a Responder that keeps what it sends.
type answer struct {
	header   http.Header
	code     int
	body     string
	closed   bool
	observed *metav1.Status
}

func (*answer) RequestHeader(string) string       { return "" }
func (a *answer) SetHeader(key, value string)     { a.header.Set(key, value) }
func (a *answer) Send(code int, body []byte)      { a.code, a.body = code, string(body) }
func (*answer) Stream(int, io.WriterTo, int64)    { panic("BUG: a Status is not streamed") }
func (a *answer) HangUp()                         { a.closed = true }
func (a *answer) ObserveFailure(s *metav1.Status) { a.observed = s }
func newAnswer() *answer                          { return &answer{header: http.Header{}} }

// A Status is sent with the headers that depend on which it is, and shown to a responder that keeps
// a record.
func TestWriteSetsHeadersOfTheStatus(t *testing.T) {
	for _, c := range []struct {
		status  *metav1.Status
		code    int
		retry   string
		nosniff bool
	}{
		{BadRequest("x"), 400, "", false},
		{Unauthorized(), 401, "", false},
		{Forbidden("x"), 403, "", true},
		{NotReady(2), 429, "2", false},
		{HeadTooLarge(), 431, "", false},
		{BadGateway("x"), 502, "", false},
		{ShuttingDown(), 503, "1", true},
	} {
		a := newAnswer()
		Write(a, c.status)
		if a.code != c.code || a.header.Get("Retry-After") != c.retry ||
			(a.header.Get("X-Content-Type-Options") != "") != c.nosniff {
			t.Errorf("%d: %d, %v", c.code, a.code, a.header)
		}
		if a.observed != c.status || a.body != string(Body(c.status)) || a.header.Get(AuditIDHeader) == "" {
			t.Errorf("%d: observed %v, %q, %v", c.code, a.observed, a.body, a.header)
		}
	}
}

// Flow control refuses with its own text, and with a Status and the end of the connection while the
// proxy stops.
func TestWriteLimited(t *testing.T) {
	a := newAnswer()
	WriteLimited(a, StatusFormat{}, false, 3*time.Second)
	if a.code != 429 || a.body != TooManyRequestsText || a.header.Get("Retry-After") != "3" || a.closed {
		t.Errorf("%+v", a)
	}
	a = newAnswer()
	WriteLimited(a, StatusFormat{}, true, 3*time.Second)
	if a.code != 503 || !a.closed || !strings.Contains(a.body, "apiserver is shutting down") {
		t.Errorf("while it stops: %+v", a)
	}
}

// An error of upstream's own code brings its Status; any other one is a 500 without a reason (W-27,
// W-170).
func TestOf(t *testing.T) {
	if s := Of(apierrors.NewNotFound(schema.GroupResource{Resource: "pods"}, "a")); s.Code != 404 || s.Kind != "Status" {
		t.Errorf("%+v", s)
	}
	if s := Of(io.EOF); s.Code != 500 || s.Reason != "" || s.Message != "EOF" {
		t.Errorf("%+v", s)
	}
}
