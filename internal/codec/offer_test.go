package codec

import (
	"bytes"
	"compress/gzip"
	"encoding/hex"
	"io"
	"net"
	"runtime/debug"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"spillway/internal/object"
)

var (
	configmaps = object.NewResource(schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}, "ConfigMap", true,
		true)
	crds = object.NewResource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1",
		Resource: "customresourcedefinitions"},
		"CustomResourceDefinition", false, true)
	daemonSets = object.NewResource(schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "daemonsets"},
		"DaemonSet", true, true)
	widgets = object.NewResource(schema.GroupVersionResource{Group: "wire.example", Version: "v1", Resource: "widgets"},
		"Widget", true, false)
)

func parse(t testing.TB, r *object.Resource, raw string) *object.Object {
	t.Helper()
	o, err := r.Parse([]byte(raw))
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// TestOffers: what needs Go types is offered only while they exist and know what upstream sends
// (W-235), and nothing that has failed.
func TestOffers(t *testing.T) {
	current, old := &SchemaVersion{minor: 37}, &SchemaVersion{minor: 37}
	current.SetUpstream("37+")
	old.SetUpstream("38")
	type offer struct {
		f object.Format
		v object.View
	}
	always := []offer{{object.JSON, object.Whole}}
	cut := append(always, offer{object.JSON, object.Metadata}, offer{object.JSON, object.MetadataV1beta1})
	partial := append(cut, offer{object.Protobuf, object.Metadata}, offer{object.Protobuf, object.MetadataV1beta1})
	all := append(partial, offer{object.Protobuf, object.Whole})
	for name, c := range map[string]struct {
		codec *Codec
		want  []offer
	}{
		"none":                           {nil, always},
		"built-in":                       {New(configmaps, current), all},
		"built-in, upstream newer":       {New(configmaps, old), cut},
		"built-in, upstream unknown":     {New(configmaps, &SchemaVersion{minor: 37}), cut},
		"built-in without a type":        {New(crds, current), partial},
		"built-in with annotations":      {New(daemonSets, current), append(always, offer{object.Protobuf, object.Whole})},
		"custom resource":                {New(widgets, current), partial},
		"custom resource, newer":         {New(widgets, old), always},
		"custom resource, unknown codec": {New(widgets, nil), always},
	} {
		var got []offer
		for _, f := range []object.Format{object.JSON, object.YAML, object.Protobuf} {
			for _, v := range []object.View{object.Whole, object.Metadata, object.MetadataV1beta1} {
				if c.codec.Offers(f, v) {
					got = append(got, offer{f, v})
				}
			}
		}
		for _, w := range c.want {
			if !c.codec.Offers(w.f, w.v) {
				t.Errorf("%s: %+v is not offered", name, w)
			}
		}
		if len(got) != len(c.want) {
			t.Errorf("%s: offers %v, want %v", name, got, c.want)
		}
	}
	c := New(configmaps, current)
	if !c.Withdraw(object.Protobuf, object.Whole) || c.Withdraw(object.Protobuf, object.Whole) {
		t.Error("a withdrawal is news once")
	}
	if c.Offers(object.Protobuf, object.Whole) || !c.Offers(object.Protobuf, object.Metadata) {
		t.Error("exactly what was withdrawn is not offered")
	}
	if (*Codec)(nil).Withdraw(object.Protobuf, object.Whole) {
		t.Error("nothing can be withdrawn where nothing is offered")
	}
}

// TestRelease: the version of the types is that of k8s.io/api in the build; upstream's may carry a
// plus.
func TestRelease(t *testing.T) {
	f := func(own int, upstream string, want bool) {
		t.Helper()
		r := &SchemaVersion{minor: own}
		if r.Suffices() {
			t.Error("it suffices before upstream's version is known")
		}
		if r.SetUpstream(upstream); r.Suffices() != want {
			t.Errorf("types of %d for upstream %q: %v", own, upstream, r.Suffices())
		}
	}
	f(37, "37", true)
	f(37, "36", true)
	f(37, "37+", true)
	f(37, "38", false)
	f(37, "", false)
	f(37, "x", false)
	f(-1, "37", false)
	api := func(version string) *debug.Module { return &debug.Module{Path: "k8s.io/api", Version: version} }
	for want, deps := range map[int][]*debug.Module{
		37: {{Path: "k8s.io/apimachinery", Version: "v0.1.0"}, api("v0.37.1")},
		36: {{Path: "k8s.io/api", Version: "v0.37.1", Replace: api("v0.36.0-rc.1")}},
		-1: {api("(devel)")},
	} {
		if got := minorOfTypes(deps); got != want {
			t.Errorf("%v: %d, want %d", deps[0], got, want)
		}
	}
}

// TestRefusesWhatItWouldLose: a member that the Go type does not know fails the conversion; JSON
// keeps it (W-235).
func TestRefusesWhatItWouldLose(t *testing.T) {
	body := parse(t, configmaps,
		`{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a","resourceVersion":"7"},"data":{"a":"b"},"new":1}`)
	meta := parse(t, configmaps,
		`{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a","resourceVersion":"7","new":1}}`)
	custom := parse(t, widgets,
		`{"apiVersion":"wire.example/v1","kind":"Widget","metadata":{"name":"a","new":1,"resourceVersion":"7"}}`)
	for _, c := range []struct {
		o    *object.Object
		enc  object.Encoding
		fine bool
	}{
		{body, protobufWhole, false},
		{body, object.Encoding{Format: object.Protobuf, View: object.Metadata}, true},
		{body, object.Encoding{}, true},
		{body, object.Encoding{View: object.Metadata}, true},
		{meta, protobufWhole, false},
		{meta, object.Encoding{Format: object.Protobuf, View: object.Metadata}, false},
		{meta, object.Encoding{View: object.Metadata}, true}, // cut, not decoded
		{custom, object.Encoding{View: object.Metadata}, false},
	} {
		_, err := Append(nil, c.enc, c.o, 7)
		if (err == nil) != c.fine {
			t.Errorf("%+v of %s: %v", c.enc, c.o.JSON(), err)
		}
		if _, err := NewList(c.enc, c.o.Resource(), []*object.Object{c.o}, metav1.ListMeta{}); (err == nil) != c.fine {
			t.Errorf("a list in %+v of %s: %v", c.enc, c.o.JSON(), err)
		}
	}
}

// TestEncodedOnce: an object version is encoded once per form, however many ask at once.
func TestEncodedOnce(t *testing.T) {
	o := parse(t, configmaps,
		`{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a","resourceVersion":"7"},"data":{"a":"b"}}`)
	var wg sync.WaitGroup
	seen := make([]*byte, 16)
	for i := range seen {
		wg.Go(func() {
			msg, _ := wholeMessage(o)
			seen[i] = &msg[0]
		})
	}
	wg.Wait()
	for _, p := range seen {
		if p != seen[0] {
			t.Fatal("encoded twice")
		}
	}
}

// TestCustomMetadata: the metadata of a custom resource is shown in Go's field order, though
// upstream sends it sorted (W-8, W-45).
func TestCustomMetadata(t *testing.T) {
	o := parse(t, widgets, `{"apiVersion":"wire.example/v1","kind":"Widget","metadata":{"annotations":{"a":"\u003c"},`+
		`"creationTimestamp":"2026-11-20T10:16:03Z",`+
		`"generation":2,"managedFields":[{"apiVersion":"wire.example/v1","fieldsType":"FieldsV1","fieldsV1":{"f:spec":`+
		`{"f:x":{}}},"manager":"m",`+
		`"operation":"Update","time":"2026-11-20T10:16:03Z"}],"name":"a","namespace":"n","resourceVersion":"7","uid":"u"},`+
		`"spec":{"x":1}}`)
	for rv, digits := range map[uint64]string{7: "7", 9: "9"} {
		expect(t, object.Encoding{View: object.Metadata}, o, rv,
			[]byte(`{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"name":"a","namespace":"n",`+
				`"uid":"u","resourceVersion":"`+digits+
				`","generation":2,"creationTimestamp":"2026-11-20T10:16:03Z","annotations":{"a":"\u003c"},`+
				`"managedFields":[{"manager":"m","operation":"Update","apiVersion":"wire.example/v1",`+
				`"time":"2026-11-20T10:16:03Z","fieldsType":"FieldsV1",`+
				`"fieldsV1":{"f:spec":{"f:x":{}}}}]}}`))
	}
}

// TestExamples are bytes that a kube-apiserver was seen to send.
func TestExamples(t *testing.T) {
	f := func(name string, got []byte, err error, want string) {
		t.Helper()
		if err != nil || string(got) != want {
			t.Errorf("%s: %v\n got %q\nwant %q", name, err, got, want)
		}
	}
	unhex := func(text string) string {
		raw, err := hex.DecodeString(strings.ReplaceAll(text, " ", ""))
		if err != nil {
			t.Fatal(err)
		}
		return string(raw)
	}
	notFound := &metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: "Failure",
		Message: `configmaps "zz" not found`,
		Reason:  "NotFound", Details: &metav1.StatusDetails{Name: "zz", Kind: "configmaps"}, Code: 404}
	got, err := Status(object.Protobuf, notFound)
	f("W-96", got, err, unhex("6b387300 0a0c 0a027631 1206 537461747573 1251 0a060a0012001a00 1207")+"Failure"+
		unhex("1a19")+`configmaps "zz" not found`+
		unhex("2208")+"NotFound"+unhex("2a16 0a02")+"zz"+unhex("1200 1a0a")+"configmaps"+unhex("2800 3200 309403 1a00 2200"))
	got, err = Status(object.JSON, notFound)
	f("W-96", got, err, `{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure",`+
		`"message":"configmaps \"zz\" not found","reason":"NotFound",`+
		`"details":{"name":"zz","kind":"configmaps"},"code":404}`)
	got, err = Status(object.YAML, &metav1.Status{TypeMeta: notFound.TypeMeta, Status: "Failure", Code: 404})
	f("W-10", got, err, "apiVersion: v1\ncode: 404\nkind: Status\nmetadata: {}\nstatus: Failure\n")

	list := func(enc object.Encoding, r *object.Resource, meta metav1.ListMeta) ([]byte, error) {
		l, err := NewList(enc, r, nil, meta)
		if err != nil {
			return nil, err
		}
		var out bytes.Buffer
		_, err = l.WriteTo(&out)
		return out.Bytes(), err
	}
	at := metav1.ListMeta{ResourceVersion: "419"}
	got, err = list(protobufWhole, configmaps, at)
	f("W-133", got, err, unhex("6b387300 0a13 0a02")+"v1"+unhex("120d")+"ConfigMapList"+unhex("120b 0a09 0a00 1203")+"419"+
		unhex("1a00 1a00 2200"))
	got, err = list(object.Encoding{View: object.Metadata}, configmaps, at)
	f("W-45", got, err, `{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1","metadata":`+
		`{"resourceVersion":"419"},"items":null}`+"\n")
	got, err = list(object.Encoding{}, configmaps, at)
	f("W-60", got, err, `{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"419"},"items":[]}`+"\n")
	got, err = list(object.Encoding{}, widgets, metav1.ListMeta{ResourceVersion: "1037"})
	f("W-60", got, err, `{"apiVersion":"wire.example/v1","items":[],"kind":"WidgetList","metadata":{"continue":"",`+
		`"resourceVersion":"1037"}}`+"\n")
}

// TestMembers: members one after another are one stream (W-7).
func TestMembers(t *testing.T) {
	var stream []byte
	var want string
	for _, content := range []string{"", "a", strings.Repeat("frame", 1<<15)} {
		stream, want = AppendMember(stream, []byte(content)), want+content
	}
	r, err := gzip.NewReader(bytes.NewReader(stream))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(r); err != nil || string(got) != want {
		t.Errorf("%v: %d bytes, want %d", err, len(got), len(want))
	}
}

// TestMembersAreReadAtOnce: a reader has the whole of a member before there is another one.
func TestMembersAreReadAtOnce(t *testing.T) {
	server, client := net.Pipe()
	defer client.Close()
	defer server.Close()
	go func() { _, _ = server.Write(AppendMember(nil, []byte("frame"))) }()
	r, err := gzip.NewReader(client)
	if err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 5)
	_ = client.SetReadDeadline(time.Now().Add(10 * time.Second))
	if n, err := r.Read(got); err != nil || string(got[:n]) != "frame" {
		t.Fatalf("%q, %v", got[:n], err)
	}
}
