package object

import (
	"maps"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/labels"
)

// parsed is what Parse learns of an object.
type parsed struct {
	key, namespace, name, uid string
	rv                        uint64
	labels                    labels.Set
}

func TestParseReadsMetadata(t *testing.T) {
	f := func(r *Resource, raw string, want parsed) {
		t.Helper()
		o := mustParse(t, r, raw)
		got := parsed{o.Key, o.Namespace(), o.Name(), string(o.UID), o.RV, labelsOf(o)}
		if got.key != want.key || got.namespace != want.namespace || got.name != want.name || got.uid != want.uid ||
			got.rv != want.rv {
			t.Errorf("%s\n got %+v\nwant %+v", raw, got, want)
		}
		if !maps.Equal(got.labels, want.labels) {
			t.Errorf("%s: labels %v, want %v", raw, got.labels, want.labels)
		}
	}
	a := parsed{key: "n/a", namespace: "n", name: "a", uid: "u", rv: 7, labels: labels.Set{"app": "x"}}
	meta := `"metadata":{"name":"a","namespace":"n","uid":"u","resourceVersion":"7","labels":{"app":"x"}}`
	f(pods, `{"kind":"Pod","apiVersion":"v1",`+meta+`}`, a)
	f(pods, `{`+meta+`}`, a)
	f(widgets, `{"apiVersion":"wire.example/v1","kind":"Widget","metadata":{"labels":{"app":"x"},"name":"a",`+
		`"namespace":"n","resourceVersion":"7","uid":"u"}}`, a)
	f(pods, "{\n\t"+strings.ReplaceAll(meta, ":", " :\r\n ")+" \n} \n", a)
	// Cluster-scoped keys are names alone, whatever the object says.
	f(nodes, `{"metadata":{"name":"a","resourceVersion":"7"}}`, parsed{key: "a", name: "a", rv: 7})
	f(gadgets, `{"metadata":{"name":"a","namespace":"n","resourceVersion":"7"}}`, parsed{key: "a", name: "a", rv: 7})
	// What is missing, null or empty is empty.
	f(pods, `{"metadata":{"resourceVersion":"7"}}`, parsed{key: "/", rv: 7})
	f(pods, `{"metadata":{"labels":{},"resourceVersion":"7"}}`, parsed{key: "/", rv: 7})
	f(pods, `{"metadata":{"name":null,"namespace":null,"uid":null,"labels":null,"creationTimestamp":null,`+
		`"resourceVersion":"7"}}`, parsed{key: "/", rv: 7})
	f(pods, `{"metadata":{"name":"a","labels":{"k":null},"resourceVersion":"7"},"spec":null,"status":null}`,
		parsed{key: "/a", name: "a", rv: 7, labels: labels.Set{"k": ""}})
	// Escapes and Unicode are decoded as encoding/json does.
	f(pods, `{"metadata":{"name":"a\u002db","resourceVersion":"7","labels":{"a\/b":"\u003c\"\\\t\ud83d\ude00"}}}`,
		parsed{key: "/a-b", name: "a-b", rv: 7, labels: labels.Set{"a/b": "<\"\\\t😀"}})
	f(pods, `{"metadata":{"na\u006de":"ä😀","resourceVersion":"7","labels":{"ключ":"値"}}}`,
		parsed{key: "/ä😀", name: "ä😀", rv: 7, labels: labels.Set{"ключ": "値"}})
	f(pods, "{\"metadata\":{\"name\":\"a\xff\",\"resourceVersion\":\"7\",\"labels\":{\"k\":\"\\ud800\"}}}",
		parsed{key: "/a\ufffd", name: "a\ufffd", rv: 7, labels: labels.Set{"k": "\ufffd"}})
	f(pods, `{"metadata":{"resourceVersion":"18446744073709551615"}}`, parsed{key: "/", rv: 1<<64 - 1})
	// Everything else is passed over, whatever it holds.
	f(pods, `{"a":1e400,"b":-123456789012345678901234567890.5E+99,"c":[[],{},[{"metadata":{"name":"no"}}]],"d":"}\"{",`+
		meta+`,"e":[true,false,null]}`, a)
	f(pods, `{"metadata":{"annotations":{"name":"no","labels":"{\"x\":1}"},"ownerReferences":[{"name":"no",`+
		`"uid":"no"}],"managedFields":[{"fieldsV1":{"f:labels":{}}}],`+
		`"name":"a","namespace":"n","uid":"u","resourceVersion":"7","labels":{"app":"x"}}}`, a)
	// As to members that come twice, the last one wins, as in upstream's decoder; objects merge.
	f(pods, `{"metadata":{"name":"b","name":"a","resourceVersion":"6","uid":"u","labels":{"app":"y","app":"x"},`+
		`"resourceVersion":"7","namespace":"n"}}`, a)
	f(pods, `{"metadata":{"name":"a","namespace":"n","uid":"u","resourceVersion":"7","labels":{"b":"y"},"labels":null,`+
		`"labels":{"app":"x"}},"metadata":null}`, a)
	f(pods, `{"metadata":{"resourceVersion":"7","labels":{"a":"1","b":"1"},"labels":{"b":"2"}}}`,
		parsed{key: "/", rv: 7, labels: labels.Set{"a": "1", "b": "2"}})
	// Names are case-sensitive, unlike in encoding/json.
	f(pods, `{`+meta+`,"Metadata":{"name":"b"},"METADATA":5}`, a)
}

func TestParseRefuses(t *testing.T) {
	f := func(r *Resource, raw, message string) {
		t.Helper()
		o, err := r.Parse([]byte(raw))
		if err == nil {
			t.Errorf("%q was accepted as %+v", raw, o)
			return
		}
		if !strings.Contains(err.Error(), message) || !strings.HasPrefix(err.Error(), r.String()+" object at byte ") {
			t.Errorf("%q: %v, want %q", raw, err, message)
		}
	}
	// A resourceVersion that cannot be compared cannot be cached.
	f(pods, `{}`, "")
	f(widgets, `{}`, "metadata.resourceVersion is missing")
	f(pods, `{"metadata":{}}`, "metadata.resourceVersion is missing")
	f(pods, `{"metadata":null}`, "metadata.resourceVersion is missing")
	f(pods, `{"metadata":{"resourceVersion":null}}`, "metadata.resourceVersion is missing")
	f(pods, `{"metadata":{"resourceVersion":""}}`, `"" is not a decimal number`)
	f(pods, `{"metadata":{"resourceVersion":"abc"}}`, `"abc" is not a decimal number`)
	f(pods, `{"metadata":{"resourceVersion":"-1"}}`, "is not a decimal number")
	f(pods, `{"metadata":{"resourceVersion":"+1"}}`, "is not a decimal number")
	f(pods, `{"metadata":{"resourceVersion":"0x10"}}`, "is not a decimal number")
	f(pods, `{"metadata":{"resourceVersion":"1.0"}}`, "is not a decimal number")
	f(pods, `{"metadata":{"resourceVersion":"18446744073709551616"}}`, "is not a decimal number")
	f(pods, `{"metadata":{"resourceVersion":7}}`, "malformed JSON")
	// Not an object, or not all of it.
	whole := `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a","resourceVersion":"7","labels":{"a":"b"}},"spec":` +
		`{"nodeName":"x"}}`
	for i := range len(whole) {
		f(pods, whole[:i], "malformed JSON")
	}
	for _, raw := range []string{"", "null", "1", `"x"`, "[]", `["metadata":{"resourceVersion":"7"}}`, "\x00",
		`{"metadata":{"resourceVersion":"7"}]`} {
		f(pods, raw, "malformed JSON")
		f(widgets, raw, "malformed JSON")
	}
	f(widgets, whole+"x", "malformed JSON")
	f(widgets, whole+whole, "malformed JSON")
	f(widgets, whole+"\x00"+whole, "malformed JSON")
	f(widgets, `{"metadata":{"resourceVersion":"7"},}`, "malformed JSON")
	f(widgets, `{"metadata":{"resourceVersion":"7"} "spec":{}}`, "malformed JSON")
	f(widgets, `{"metadata":{"resourceVersion":"7","name":5}}`, "malformed JSON")
	f(widgets, `{"metadata":{"resourceVersion":"7","name":"a`+"\n"+`b"}}`, "malformed JSON")
	f(widgets, `{"metadata":{"resourceVersion":"7","name":"\x"}}`, "malformed JSON")
	f(widgets, `{"metadata":{"resourceVersion":"7"},"spec":}`, "malformed JSON")
	f(widgets, `{"metadata":{"resourceVersion":"7"},"spec":#}`, "malformed JSON")
	// Which of two would a view of the metadata show?
	f(pods, `{"metadata":{"resourceVersion":"7"},"metadata":{"name":"a"}}`, "malformed JSON")
}

// Values may nest as deep as in encoding/json, and no deeper: neither costs stack.
func TestParseNesting(t *testing.T) {
	f := func(open, close string, depth int, ok bool) {
		t.Helper()
		for _, place := range []string{"spec", "other"} { // with selectable fields below it, and without
			raw := `{"metadata":{"resourceVersion":"7"},"` + place + `":` + strings.Repeat(open, depth) + "1" +
				strings.Repeat(close, depth) + `}`
			if _, err := pods.Parse([]byte(raw)); (err == nil) != ok {
				t.Errorf("%d times %s in %s: %v", depth, open, place, err)
			}
		}
	}
	f(`[`, `]`, maxDepth-1, true)
	f(`[`, `]`, maxDepth, false)
	f(`{"a":`, `}`, maxDepth-1, true)
	f(`{"a":`, `}`, maxDepth, false)
	f(`{"nodeName":`, `}`, maxDepth-1, true)
	f(`[`, `]`, 50*maxDepth, false)
}

// Parse copies a typical object once, into no more room than it needs, and nothing else of it but
// keys and labels.
func TestParseCopiesOnce(t *testing.T) {
	raw := []byte(`{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a","resourceVersion":"7"}}`)
	o, err := pods.Parse(append(raw, "\n   "...))
	if err != nil || &o.JSON()[0] == &raw[0] || cap(o.JSON()) != len(raw) {
		t.Fatalf("%d bytes have room for %d (%v)", len(raw), cap(o.JSON()), err)
	}
}
