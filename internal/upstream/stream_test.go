package upstream

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/watch"

	"spillway/internal/upstream/wire"
)

func configMap(name string, rv int, data string) string {
	return fmt.Sprintf(`{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":%q,"namespace":"a","uid":"u-%s",`+
		`"resourceVersion":"%d"},"data":{"k":%q}}`,
		name, name, rv, data)
}

func frame(kind, object string) string { return `{"type":"` + kind + `","object":` + object + "}\n" }

const end = `{"kind":"ConfigMap","apiVersion":"v1","metadata":{"resourceVersion":"9","annotations":` +
	`{"k8s.io/initial-events-end":"true"}}}`

// streamOf is a stream over a body.
func streamOf(body io.Reader) *stream {
	return newStream(func() {}, NewReflector(nil, configMaps, newRecorder()), io.NopCloser(body))
}

// read describes the events of a stream over a body, and its end if a message of upstream's is one.
func read(body io.Reader) []string {
	var got []string
	for s := streamOf(body); ; {
		e, err := s.next()
		var message *messageError
		var status apierrors.APIStatus
		switch {
		case errors.As(err, &status):
			return append(got, fmt.Sprintf("ERROR %d", status.Status().Code))
		case errors.As(err, &message):
			return append(got, "not understood")
		case err != nil:
			return got
		case e.kind == watch.Bookmark:
			got = append(got, fmt.Sprintf("%s %d %v", e.kind, e.rv, e.endsInitial))
		default:
			got = append(got, fmt.Sprintf("%s %s %d %d", e.kind, e.object.Key, e.rv, e.object.Size()))
		}
	}
}

func TestStream(t *testing.T) {
	small, huge := configMap("a", 5, "x"), configMap("b", 6, strings.Repeat("y", 3*wire.Buffer))
	added := fmt.Sprintf("ADDED a/a 5 %d", len(small))
	f := func(name, body string, want ...string) {
		t.Helper()
		t.Run(name, func(t *testing.T) {
			for how, r := range map[string]io.Reader{
				"whole":  strings.NewReader(body),
				"halves": iotest.HalfReader(strings.NewReader(body)),
				"bytes":  iotest.OneByteReader(strings.NewReader(body)),
				"broken": io.MultiReader(strings.NewReader(body), iotest.ErrReader(errors.New("connection reset"))),
			} {
				if got := read(r); !slices.Equal(got, want) {
					t.Errorf("%s: got %q, want %q", how, got, want)
				}
			}
		})
	}
	f("empty", "")
	f("one event", frame("ADDED", small), added)
	f("all types", frame("ADDED", small)+frame("MODIFIED", small)+frame("DELETED", small)+frame("BOOKMARK", end), added,
		"MODIFIED"+added[5:], "DELETED"+added[5:], "BOOKMARK 9 true")
	f("a line longer than the buffer", frame("ADDED", huge)+frame("ADDED", small),
		fmt.Sprintf("ADDED a/b 6 %d", len(huge)), added)
	f("other order of members", `{ "object" : `+small+`, "type": "ADDED" }`+"\n", added)
	f("cut off in the second event", frame("ADDED", small)+frame("MODIFIED", huge)[:1000], added)
	f("cut off before the line feed", frame("ADDED", small)+strings.TrimSuffix(frame("ADDED", small), "\n"), added)
	f("expired", frame("ADDED", small)+
		frame("ERROR", `{"kind":"Status","status":"Failure","reason":"Expired","code":410}`)+frame("ADDED", small),
		added, "ERROR 410")
	f("an error that is no Status", frame("ERROR", `{"kind":"Pod"}`), "not understood")
	f("unknown type", frame("RENAMED", small), "not understood")
	f("two objects in one event", frame("ADDED", small+`,"object":`+small), "not understood")
	f("not JSON", "<html>\n", "not understood")
	f("an object without a version", frame("ADDED", `{"metadata":{"name":"x"}}`), "not understood")
	f("a version that is no number", frame("ADDED", strings.Replace(small, `"5"`, `"five"`, 1)), "not understood")
	f("a bookmark without a version", frame("BOOKMARK", `{"metadata":{}}`), "not understood")
}

// Objects are kept for long: they must own their bytes, and no more than those.
func TestStreamKeepsExactBytes(t *testing.T) {
	a, b := configMap("a", 1, "first"), configMap("b", 2, "other")
	s := streamOf(strings.NewReader(frame("ADDED", a) + frame("ADDED", b)))
	var got [][]byte
	for range 2 {
		e, err := s.next()
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, e.object.JSON())
	}
	for i, want := range []string{a, b} {
		if string(got[i]) != want || cap(got[i]) != len(want) {
			t.Errorf("object %d: %q with capacity %d, want %q", i, got[i], cap(got[i]), want)
		}
	}
}

// Whichever reason comes first is why a watch ended, and the loop learns it.
func TestStreamFail(t *testing.T) {
	in, out := io.Pipe()
	r := NewReflector(nil, configMaps, newRecorder())
	s := newStream(func() { _ = out.CloseWithError(io.ErrClosedPipe) }, r, in)
	s.fail(errRelist)
	s.fail(errors.New("later"))
	l := loop{r: r}
	if err := l.follow(t.Context(), s); !apierrors.IsResourceExpired(err) {
		t.Errorf("it ended with %v", err)
	}
}

// member is one gzip member. Without flush its last data are in its last block, as servers other
// than kube-apiserver may write it.
func member(text string, flush bool) []byte {
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	_, _ = io.WriteString(z, text)
	if flush {
		_ = z.Flush()
	}
	_ = z.Close()
	return out.Bytes()
}

// Each event must be read when its member has arrived, with nothing behind it.
func TestGzipMembersAreNotDelayed(t *testing.T) {
	for _, flush := range []bool{true, false} {
		r, w := io.Pipe()
		s := streamOf(wire.NewMembers(r))
		events := make(chan event)
		go func() {
			defer close(events)
			for e, err := s.next(); err == nil; e, err = s.next() {
				events <- e
			}
		}()
		for i := 1; i <= 3; i++ {
			if _, err := w.Write(member(frame("ADDED", configMap("a", i, strings.Repeat("z", i*50_000))), flush)); err != nil {
				t.Fatal(err)
			}
			if e := <-events; e.rv != uint64(i) {
				t.Fatalf("event %d is %v", i, e)
			}
		}
		_ = w.Close()
		if e, more := <-events; more {
			t.Errorf("after the end: %v", e)
		}
	}
}

func TestGzipMembers(t *testing.T) {
	two := append(member("one,", true), member("two", false)...)
	f := func(name string, body []byte, want string, wantErr error) {
		t.Helper()
		got, err := io.ReadAll(wire.NewMembers(io.NopCloser(iotest.OneByteReader(bytes.NewReader(body)))))
		if string(got) != want || !errors.Is(err, wantErr) {
			t.Errorf("%s: %q, %v; want %q, %v", name, got, err, want, wantErr)
		}
	}
	f("nothing", nil, "", nil)
	f("two members", two, "one,two", nil)
	f("an empty member between", slices.Concat(member("a", false), member("", true), member("b", true)), "ab", nil)
	f("cut off in the header", two[:len(member("one,", true))+4], "one,", io.ErrUnexpectedEOF)
	f("cut off in the trailer", two[:len(two)-1], "one,two", io.ErrUnexpectedEOF)
	f("no gzip", []byte("plain text"), "", gzip.ErrHeader)
}

// FuzzStream feeds arbitrary bytes: nothing panics, and every event is what encoding/json reads in
// the same line.
func FuzzStream(f *testing.F) {
	small := configMap("a", 5, "x")
	f.Add([]byte(frame("ADDED", small)+frame("BOOKMARK", end)), 7)
	f.Add([]byte(frame("ERROR", `{"kind":"Status","code":410}`)), 1)
	f.Add([]byte(`{"object":`+small+`,"type":"DELETED"}`+"\n\n"), 3)
	f.Add([]byte(frame("ADDED", small+`,"type":"DELETED"`)), 3)
	f.Fuzz(func(t *testing.T, body []byte, chunk int) {
		var in io.Reader = bytes.NewReader(body)
		if chunk%2 == 0 {
			in = iotest.OneByteReader(in)
		}
		s := streamOf(in)
		lines := bytes.Split(body, []byte("\n"))
		for {
			e, err := s.next()
			if err != nil {
				return
			}
			if len(lines) < 2 {
				t.Fatalf("%v comes from no whole line", e)
			}
			line := lines[0]
			lines = lines[1:]
			if e.object == nil {
				continue
			}
			var want struct {
				Type   string
				Object json.RawMessage
			}
			if err := json.Unmarshal(line, &want); err != nil {
				continue // we check less than encoding/json does
			}
			if string(e.kind) != want.Type || !bytes.Equal(bytes.TrimSpace(e.object.JSON()), withType(want.Object)) {
				t.Fatalf("line %q\nread as %s %s", line, e.kind, e.object.JSON())
			}
		}
	})
}

// withType is what Parse makes of raw.
func withType(raw []byte) []byte {
	o, err := configMaps.Parse(raw)
	if err != nil {
		return nil
	}
	return o.JSON()
}

// A watch that goes back, or begins before the requested resourceVersion, is of no use any more.
// Initial events come in any order.
func TestStreamGoesBack(t *testing.T) {
	bookmarkAt := func(rv int) string {
		return frame("BOOKMARK", fmt.Sprintf(`{"kind":"ConfigMap","apiVersion":"v1","metadata":{"resourceVersion":"%d"}}`,
			rv))
	}
	initialEnd := frame("BOOKMARK", end)
	f := func(name string, asked uint64, initial bool, body string, events int, back bool) {
		t.Helper()
		r := NewReflector(nil, configMaps, newRecorder())
		s := newStream(func() {}, r, io.NopCloser(strings.NewReader(body)))
		s.lastRV, s.isOrdered = asked, !initial
		n := 0
		var err error
		for ; err == nil; n++ {
			_, err = s.next()
		}
		n--
		l := loop{r: r}
		_ = l.end(t.Context(), s, err)
		if n != events || (r.Status().Regressions == 1) != back || errors.Is(r.Status().Err, errWentBack) != back {
			t.Errorf("%s: %d events, %+v; want %d, back: %v", name, n, r.Status(), events, back)
		}
	}
	at := func(rv int) string { return frame("MODIFIED", configMap("a", rv, "x")) }
	f("forward", 4, false, at(5)+at(7)+bookmarkAt(7)+bookmarkAt(7)+at(8), 5, false)
	f("an event that goes back", 4, false, at(7)+at(5)+at(8), 1, true)
	f("one below what was requested", 6, false, at(5), 0, true)
	f("a bookmark that goes back", 4, false, at(7)+bookmarkAt(6), 1, true)
	f("a bookmark below what was requested", 4, false, bookmarkAt(3), 0, true)
	f("two with one version", 4, false, at(5)+at(5), 2, false)
	f("initial events", 4, true, at(8)+at(2)+initialEnd+at(10), 4, false)
	f("back after initial events", 0, true, at(8)+initialEnd+at(8), 2, true)
	f("a state that is older than what was requested", 10, true, at(8)+initialEnd, 1, true)
}
