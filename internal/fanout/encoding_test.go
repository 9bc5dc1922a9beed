package fanout

import (
	"bytes"
	"compress/gzip"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http/httputil"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"spillway/internal/codec"
	"spillway/internal/object"
)

var configmaps = object.NewResource(schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}, "ConfigMap",
	true, true)

var expired = &metav1.Status{
	TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: "Failure",
	Message: "too old resource version: 1 (300)", Reason: "Expired", Code: 410,
}

// TestProtobufFrames are the examples of W-132, to the byte.
func TestProtobufFrames(t *testing.T) {
	unhex := func(text string) string {
		raw, err := hex.DecodeString(strings.ReplaceAll(text, " ", ""))
		if err != nil {
			t.Fatal(err)
		}
		return string(raw)
	}
	f := func(got []byte, want string) {
		t.Helper()
		if string(got) != want {
			t.Fatalf("got\n%q\nwant\n%q", got, want)
		}
	}
	bookmark := unhex("00000061 0a08 424f4f4b4d41524b 1255 0a53 6b387300 0a0f 0a027631 1209") + "ConfigMap" +
		unhex("1238 0a36 0a00 1200 1a00 2200 2a00 3203 343335"+
			"3800 4200 6221 0a19") + "k8s.io/initial-events-end" + unhex("1204") + "true" + unhex("1a00 2200")
	f(made(AppendBookmark(nil, whole, object.NewBookmark(configmaps), 435, true)), bookmark)
	inChunk := whole
	inChunk.Chunked = true
	f(made(AppendBookmark(nil, inChunk, object.NewBookmark(configmaps), 435, true)),
		fmt.Sprintf("%x\r\n%s\r\n", 101, bookmark))
	f(made(AppendError(nil, whole, expired)), unhex("00000063 0a05")+"ERROR"+
		unhex("125a 0a58 6b387300 0a0c 0a027631 1206")+"Status"+
		unhex("1240 0a06 0a00 1200 1a00 1207")+"Failure"+unhex("1a21")+"too old resource version: 1 (300)"+unhex("2207")+
		"Expired"+unhex("309a03 1a00 2200"))

	o, err := configmaps.Parse(
		[]byte(`{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a","resourceVersion":"7"},"data":{"k":"v"}}`))
	if err != nil {
		t.Fatal(err)
	}
	later, err := codec.Append(nil, whole, o, 1000)
	if err != nil {
		t.Fatal(err)
	}
	f(made(AppendEvent([]byte("before"), whole, object.Deleted, o, 1000)),
		"before"+unhex(fmt.Sprintf("000000%02x 0a07", len(later)+13))+"DELETED"+
			unhex(fmt.Sprintf("12%02x 0a%02x", len(later)+2, len(later)))+string(later))
}

// TestGzipMembersHoldThePlainStream: what lies in the members, one after another, is the bare
// stream; a run of frames is one member (W-7).
func TestGzipMembersHoldThePlainStream(t *testing.T) {
	w := newWorld(t, plenty)
	b := object.NewBookmark(pods)
	var stream, want []byte
	var run []*object.Object
	for i := range 5 {
		o := w.pod(fmt.Sprintf("a/x%d", i), "web", uint64(i)+200, 1000*i)
		stream = made(AppendEvent(stream, zipped, object.Added, o, o.RV))
		want = made(AppendEvent(want, plain, object.Added, o, o.RV))
		run = append(run, o)
	}
	for range 2 { // made, and made before
		stream = made(AppendState(stream, zipped, run))
		want = made(AppendState(want, plain, run))
	}
	stream = made(AppendBookmark(stream, zipped, b, 211, false))
	stream = made(AppendError(stream, zipped, expired))
	want = made(AppendError(made(AppendBookmark(want, plain, b, 211, false)), plain, expired))

	body := httputil.NewChunkedReader(bytes.NewReader(AppendEnd(stream, zipped)))
	z, err := gzip.NewReader(body)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(z); err != nil || !bytes.Equal(got, want) {
		t.Fatalf("%v, got\n%q\nwant\n%q", err, got, want)
	}
}

// TestAnUnencodableEventEndsItsCursorsAlone: an event that cannot be made ends the cursors that
// come to it, after everything before it and without a step over it; and no others. Its feed goes
// on behind it.
func TestAnUnencodableEventEndsItsCursorsAlone(t *testing.T) {
	w := newWorld(t, plenty)
	start := w.resource.CompleteRV()
	fits := func(name string) *object.Object {
		w.rv++
		raw := fmt.Sprintf(`{"kind":"Pod","apiVersion":"v1","metadata":{"name":%q,"namespace":"a","resourceVersion":"%d",`+
			`"labels":{"app":"web"}}}`, name, w.rv)
		o, err := pods.Parse([]byte(raw))
		w.must(err)
		return o
	}
	c, other, bystander := w.live(everything, whole), w.live(app("web"), whole), w.live(everything, plain)
	w.must(w.resource.Update(fits("x")))
	w.hub.Dispatch()
	if run, err := c.Next(); err != nil || !strings.Contains(string(run), "ADDED") {
		t.Fatalf("%q, %v", run, err)
	}
	w.must(w.resource.Update(fits("y")))
	w.set("a/unknown", "db") // has a member that no Go type knows
	w.must(w.resource.Update(fits("z")))
	w.hub.Dispatch()

	for _, at := range []struct {
		name   string
		cursor *Cursor
	}{{"live", c}, {"from history", w.resume(start, everything, whole)}} {
		run, err := drain(at.cursor)
		if !errors.Is(err, ErrUnencodable) || !strings.Contains(string(run), "y") || strings.Contains(string(run), "z") {
			t.Fatalf("%s: %q, %v", at.name, run, err)
		}
		if run, err := at.cursor.Next(); len(run) > 0 || !errors.Is(err, ErrUnencodable) {
			t.Fatalf("%s, later: %q, %v", at.name, run, err)
		}
		if at.cursor.CompleteRV() >= w.rv-1 {
			t.Fatalf("%s: complete through %d, which it is not", at.name, at.cursor.CompleteRV())
		}
	}
	if run, err := drain(other); err != nil || !strings.Contains(string(run), "z") {
		t.Fatalf("a cursor that does not see the event: %q, %v", run, err)
	}
	w.expect(bystander, "ADDED a/x 102", "ADDED a/y 103", "ADDED a/unknown 104", "ADDED a/z 105")
	after := w.live(everything, whole)
	w.must(w.resource.Update(fits("zz")))
	w.hub.Dispatch()
	if run, err := drain(after); err != nil || !strings.Contains(string(run), "zz") || !after.live {
		t.Fatalf("a cursor that begins behind it: %q, %v", run, err)
	}
}
