package object

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestStripManagedFields(t *testing.T) {
	const managed = `"managedFields":[{"manager":"a,}\"","fieldsV1":{"f:metadata":{"managedFields":{}}}},{}]`
	for name, c := range map[string]struct{ raw, want string }{
		"first": {`{"metadata":{` + managed + `,"name":"a","resourceVersion":"1"},"x":1}`,
			`{"metadata":{"name":"a","resourceVersion":"1"},"x":1}`},
		"last": {`{"metadata":{"name":"a","resourceVersion":"1",` + managed + `},"x":1}`,
			`{"metadata":{"name":"a","resourceVersion":"1"},"x":1}`},
		"in between": {`{"x":1,"metadata":{"name":"a",` + managed + `,"resourceVersion":"1"}}`,
			`{"x":1,"metadata":{"name":"a","resourceVersion":"1"}}`},
		"none": {`{"metadata":{"name":"a","resourceVersion":"1"}}`,
			`{"metadata":{"name":"a","resourceVersion":"1"}}`},
		"null": {`{"metadata":{"name":"a","managedFields":null,"resourceVersion":"1"}}`,
			`{"metadata":{"name":"a","resourceVersion":"1"}}`},
		"elsewhere": {`{"managedFields":[],"metadata":{"name":"a","resourceVersion":"1"},"spec":{"metadata":{` + managed +
			`}}}`, `{"managedFields":[],"metadata":{"name":"a","resourceVersion":"1"},"spec":{"metadata":{` + managed + `}}}`},
		"blanks": {`{ "metadata" : { "name" : "a" , ` + managed + ` , "resourceVersion":"1" } }`,
			`{ "metadata" : { "name" : "a" , "resourceVersion":"1" } }`},
		"as an escape": {`{"metadata":{"name":"a","managed\u0046ields":[],"resourceVersion":"1"}}`,
			`{"metadata":{"name":"a","resourceVersion":"1"}}`},
	} {
		t.Run(name, func(t *testing.T) {
			r := NewResource(schema.GroupVersionResource{Group: "g", Version: "v1", Resource: "things"}, "Thing", false, false)
			r.StripManagedFields()
			raw := []byte(c.raw)
			o, err := r.Parse(raw)
			if err != nil {
				t.Fatal(err)
			}
			if got := string(o.JSON()); got != c.want || o.Key != "a" || o.RV != 1 {
				t.Errorf("key %q at %d,\ngot  %s\nwant %s", o.Key, o.RV, got, c.want)
			}
			if string(raw) != c.raw {
				t.Error("Parse has changed what it was given")
			}
		})
	}
}

// An item of a built-in list gets its type and loses its managedFields.
func TestStripItem(t *testing.T) {
	r := NewResource(schema.GroupVersionResource{Version: "v1", Resource: "pods"}, "Pod", true, true)
	r.StripManagedFields()
	o, err := r.Parse([]byte(
		`{"metadata":{"name":"a","namespace":"n","resourceVersion":"1","managedFields":[]},"spec":{}}`))
	if err != nil {
		t.Fatal(err)
	}
	if got, want := string(o.JSON()),
		`{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a","namespace":"n","resourceVersion":"1"},"spec":`+
			`{}}`; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if got, want := string(o.Metadata()), `{"name":"a","namespace":"n","resourceVersion":"1"}`; got != want {
		t.Errorf("metadata %s, want %s", got, want)
	}
}

// What is cut out of valid JSON is managedFields and nothing else.
func FuzzStripManagedFields(f *testing.F) {
	for _, seed := range []string{
		`{"metadata":{"managedFields":[{"a":"\"}"}],"name":"a"},"x":[{"managedFields":1}]}`,
		`{"metadata":{"a":1,"managedFields":{}}}`, `{"metadata":{"managedFields":0}}`,
		`{"metadata":[],"metadata":{"managedFields":1}}`, ` { "metadata" : { "managedFields" : [ ] , "b" : 1 } } `,
		`{"metadata":{"managedFields":[}}`, `{"metadata":`, `[]`, ``,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		before := slices.Clone(raw)
		got, copied := withoutManagedFields(raw)
		if !slices.Equal(raw, before) || !copied && !slices.Equal(got, raw) {
			t.Fatal("what was given was changed")
		}
		var whole, left map[string]any
		if json.Unmarshal(raw, &whole) != nil || strings.Count(string(raw), "etadata") > 1 ||
			strings.Contains(string(raw), `\u`) {
			return // where a name stands twice, the last counts: upstream does not do that
		}
		if err := json.Unmarshal(got, &left); err != nil {
			t.Fatalf("%q became %q: %v", raw, got, err)
		}
		if meta, ok := whole["metadata"].(map[string]any); ok && strings.Count(string(raw), "managedFields") == 1 {
			delete(meta, "managedFields")
		}
		if strings.Count(string(raw), "managedFields") <= 1 && !reflect.DeepEqual(whole, left) {
			t.Errorf("%q became %q", raw, got)
		}
	})
}
