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

// written is a Responder that keeps what it sends.
type written struct {
	header http.Header
	code   int
	body   string
	closed bool
}

func (*written) RequestHeader(string) string    { return "" }
func (a *written) SetHeader(key, value string)  { a.header.Set(key, value) }
func (a *written) Send(code int, body []byte)   { a.code, a.body = code, string(body) }
func (*written) Stream(int, io.WriterTo, int64) { panic("BUG: a Status is not streamed") }
func (a *written) HangUp()                      { a.closed = true }
func newWritten() *written                      { return &written{header: http.Header{}} }

// A Status is sent with the headers that depend on which it is.
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
		a := newWritten()
		Failure(c.status).Write(a)
		if a.code != c.code || a.header.Get("Retry-After") != c.retry ||
			(a.header.Get("X-Content-Type-Options") != "") != c.nosniff {
			t.Errorf("%d: %d, %v", c.code, a.code, a.header)
		}
		if a.body != string(Body(c.status)) || a.header.Get(AuditIDHeader) == "" {
			t.Errorf("%d: %q, %v", c.code, a.body, a.header)
		}
	}
}

// Flow control refuses with its own text, and with a Status and the end of the connection while the
// proxy stops.
func TestWriteLimited(t *testing.T) {
	a := newWritten()
	Limited(StatusFormat{}, false, 3*time.Second).Write(a)
	if a.code != 429 || a.body != TooManyRequestsText || a.header.Get("Retry-After") != "3" || a.closed {
		t.Errorf("%+v", a)
	}
	a = newWritten()
	Limited(StatusFormat{}, true, 3*time.Second).Write(a)
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
