package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"spillway/internal/object"
)

var configMaps = object.NewResource(schema.GroupVersionResource{Version: "v1", Resource: "configmaps"},
	"ConfigMap", true, true)

// chunkedReader is a body that arrives n bytes at a time.
type chunkedReader struct {
	rest []byte
	n    int
}

func (p *chunkedReader) Read(b []byte) (int, error) {
	if len(p.rest) == 0 {
		return 0, io.EOF
	}
	n := copy(b[:min(p.n, len(b))], p.rest)
	p.rest = p.rest[n:]
	return n, nil
}

// keysOf are the keys of a list's items.
func keysOf(items []*object.Object) string {
	var keys []string
	for _, o := range items {
		keys = append(keys, o.Key)
	}
	return strings.Join(keys, " ")
}

func TestReadList(t *testing.T) {
	const one, two = `{"metadata":{"name":"one","namespace":"a","resourceVersion":"1"},"data":{"k":"]}\\\",{["}}`,
		`{ "metadata" : {"namespace":"a","name":"two","resourceVersion":"2"} }`
	f := func(body, want string) {
		t.Helper()
		for n := 1; n <= len(body); n++ {
			list, err := ReadList(configMaps, &chunkedReader{[]byte(body), n})
			if err != nil {
				t.Fatalf("%s in pieces of %d: %v", body, n, err)
			}
			if got := keysOf(list.Objects) + "@" + list.Meta.ResourceVersion + list.Meta.Continue; got != want {
				t.Fatalf("%s in pieces of %d: %s, want %s", body, n, got, want)
			}
		}
		for cut := range body {
			list, err := ReadList(configMaps, strings.NewReader(body[:cut]))
			if cut < len(strings.TrimSpace(body)) && !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Fatalf("%s: got %v, %v", body[:cut], list, err)
			}
		}
	}
	f(`{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"7"},"items":[`+one+`,`+two+`]}`,
		"a/one a/two@7")
	f(" { \"items\" : [ "+two+" , "+one+
		" ] , \"metadata\" : {\"resourceVersion\":\"7\",\"continue\":\"c\"} , \"x\" : -1.5e3 , \"y\":\"\\\"\" } \n",
		"a/two a/one@7c")
	f(`{"metadata":{"resourceVersion":"7"},"items":[]}`, "@7")
	f(`{"items":null,"metadata":{"resourceVersion":"7"}}`, "@7")
	f(`{}`, "@")
}

func TestReadListRefuses(t *testing.T) {
	for _, body := range []string{
		`[]`, `{"items":{}}`, `{"items":1}`, `{"items":"null"}`, `{"items":[1]}`, `{"items":[{}]}`,
		`{"items":[{"metadata":{"resourceVersion":"x"}}]}`,
		`{"metadata":{"resourceVersion":"x"}}`, `{"metadata":1}`, `{"a" 1}`, `{"a":1 "b":2}`, `{1:2}`, `{"a":tru}`, `{"a":}`,
		`{,}`, `{"a":1,}`,
		`{"items":[{"metadata":{"name":"a","resourceVersion":"1"}} {"metadata":{"name":"a","resourceVersion":"1"}}]}`,
		`{"items":[,]}`, `{"items":[}`,
	} {
		if list, err := ReadList(configMaps, strings.NewReader(body)); err == nil {
			t.Errorf("%s is read as %+v", body, list)
		}
	}
	broken := errors.New("the line is dead")
	if _, err := ReadList(configMaps,
		io.MultiReader(strings.NewReader(`{"items":[`), iotest.ErrReader(broken))); !errors.Is(err, broken) {
		t.Errorf("a body that breaks off says %v", err)
	}
}

// Whatever both ReadList and encoding/json accept, both understand alike, in whatever pieces it
// arrives.
func FuzzReadList(f *testing.F) {
	for _, seed := range []string{
		`{"kind":"PodList","metadata":{"resourceVersion":"7","continue":"c"},"items":[{"metadata":{"name":"\u0061\"",` +
			`"resourceVersion":"1"}}, {"metadata":{"resourceVersion":"2"}}]}`,
		`{"items":[],"items":null,"metadata":{"resourceVersion":"1"},"x":[{"a":"]"}]}`,
		`{"it\u0065ms":[{"metadata":{"resourceVersion":"2"}}]}`,
	} {
		f.Add([]byte(seed), uint8(3))
	}
	f.Fuzz(func(t *testing.T, body []byte, n uint8) {
		list, err := ReadList(configMaps, &chunkedReader{bytes.Clone(body), int(n) + 1})
		whole, wholeErr := ReadList(configMaps, bytes.NewReader(body))
		if fmt.Sprint(err) != fmt.Sprint(wholeErr) {
			t.Fatalf("in pieces %v, as a whole %v", err, wholeErr)
		}
		var members map[string]json.RawMessage
		if err != nil || json.Unmarshal(body, &members) != nil || bytes.Count(body, []byte("items")) > 1 ||
			bytes.Contains(body, []byte(`\u`)) {
			return // items that are there twice are all taken
		}
		var items []json.RawMessage
		if members["items"] != nil && json.Unmarshal(members["items"], &items) != nil {
			return
		}
		if len(items) != len(list.Objects) || keysOf(list.Objects) != keysOf(whole.Objects) {
			t.Fatalf("%d items %s, whole %s, want %d", len(list.Objects), keysOf(list.Objects), keysOf(whole.Objects),
				len(items))
		}
		for i := range items {
			o, err := configMaps.Parse(items[i])
			if err != nil || !bytes.Equal(o.JSON(), list.Objects[i].JSON()) {
				t.Fatalf("item %d is %s, want %s, %v", i, list.Objects[i].JSON(), items[i], err)
			}
		}
	})
}

// A value may be larger than what is read at a time.
func TestReadLargeList(t *testing.T) {
	pad := strings.Repeat("x", 3*Buffer)
	body := `{"metadata":{"resourceVersion":"7"},"items":[`
	for i := range 5 {
		if i > 0 {
			body += ","
		}
		body += fmt.Sprintf(`{"metadata":{"name":"n%d","namespace":"a","resourceVersion":"%d"},"data":{"pad":%q}}`, i, i+1,
			pad[:i*Buffer/2])
	}
	body += "]}"
	list, err := ReadList(configMaps, strings.NewReader(body))
	if err != nil || keysOf(list.Objects) != "a/n0 a/n1 a/n2 a/n3 a/n4" {
		t.Fatalf("%v, %v", keysOf(list.Objects), err)
	}
	for _, o := range list.Objects {
		if cap(o.JSON()) > o.Size() {
			t.Errorf("%s has room for %d bytes and is %d long", o.Key, cap(o.JSON()), o.Size())
		}
	}
}
