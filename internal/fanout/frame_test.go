package fanout

import (
	"fmt"
	"math"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"spillway/internal/object"
)

func TestFramesHaveTheBytesOfTheAPIServer(t *testing.T) {
	w := newWorld(t, plenty)
	o := w.pod("a/x", "web", 9, 0)
	body := string(o.JSON())
	later := strings.Replace(body, `"resourceVersion":"9"`, `"resourceVersion":"1000"`, 1)
	chunk := func(s string) string { return fmt.Sprintf("%x\r\n%s\r\n", len(s), s) }
	f := func(got []byte, want string) {
		t.Helper()
		if string(got) != want {
			t.Fatalf("got\n%q\nwant\n%q", got, want)
		}
	}
	f(made(AppendEvent(nil, plain, object.Added, o, 9)), `{"type":"ADDED","object":`+body+"}\n")
	f(made(AppendEvent(nil, plain, object.Modified, o, 9)), `{"type":"MODIFIED","object":`+body+"}\n")
	f(made(AppendEvent(nil, plain, object.Deleted, o, 1000)), `{"type":"DELETED","object":`+later+"}\n")
	f(made(AppendEvent(nil, chunked, object.Added, o, 9)), chunk(`{"type":"ADDED","object":`+body+"}\n"))
	f(made(AppendEvent(nil, chunked, object.Deleted, o, 1000)), chunk(`{"type":"DELETED","object":`+later+"}\n"))
	f(made(AppendEvent([]byte("before"), plain, object.Added, o, 9)), `before{"type":"ADDED","object":`+body+"}\n")

	b := object.NewBookmark(pods)
	f(made(AppendBookmark(nil, plain, b, 77, false)),
		`{"type":"BOOKMARK","object":{"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":"77"}}}`+"\n")
	f(made(AppendBookmark(nil, chunked, b, 77, true)),
		chunk(`{"type":"BOOKMARK","object":{"kind":"Pod","apiVersion":"v1",`+
			`"metadata":{"resourceVersion":"77","annotations":{"k8s.io/initial-events-end":"true"}}}}`+"\n"))

	// The example of W-107, to the byte: its chunk is 0xab long.
	expired := &metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: "Failure",
		Message: "too old resource version: 1 (300)", Reason: "Expired", Code: 410,
	}
	f(made(AppendError(nil, chunked, expired)),
		"ab\r\n"+`{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","metadata":{},`+
			`"status":"Failure","message":"too old resource version: 1 (300)","reason":"Expired","code":410}}`+"\n\r\n")
	f(AppendEnd(nil, chunked), "0\r\n\r\n")
	f(AppendEnd(nil, plain), "")
}

// A segment is reserved by these bounds: a frame that exceeded one would be copied out of it.
func TestFrameSizesAreUpperBounds(t *testing.T) {
	w := newWorld(t, plenty)
	rvs := []uint64{0, 9, 10, 1 << 32, math.MaxUint64}
	for pad := range 300 {
		for _, own := range rvs {
			o := w.pod("a/x", "web", own, pad*pad)
			for _, rv := range rvs {
				for _, kind := range []object.Type{object.Added, object.Modified, object.Deleted} {
					if n := len(made(AppendEvent(nil, chunked, kind, o, rv))); n > EventSize(o) {
						t.Fatalf("%v of %d bytes at %d is %d bytes, bound %d", kind, o.Size(), rv, n, EventSize(o))
					}
				}
			}
		}
	}
}
