package object

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/json"
)

// decodedPod is what upstream's decoder, encoding/json with exact names, reads of a pod.
type decodedPod struct {
	Metadata struct {
		Name            string            `json:"name"`
		Namespace       string            `json:"namespace"`
		UID             string            `json:"uid"`
		ResourceVersion string            `json:"resourceVersion"`
		Labels          map[string]string `json:"labels"`
	} `json:"metadata"`
	Spec struct {
		NodeName    string `json:"nodeName"`
		HostNetwork bool   `json:"hostNetwork"`
	} `json:"spec"`
	Status struct {
		Phase string `json:"phase"`
		PodIP string `json:"podIP"`
	} `json:"status"`
}

// Whatever both Parse and upstream's decoder accept, both understand alike; and what Parse makes of
// it can be read again.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		`{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a","namespace":"n","uid":"u","resourceVersion":"7","labels":` +
			`{"app":"x","b":""}},"spec":{"nodeName":"node-1","hostNetwork":true},` +
			`"status":{"phase":"Running","podIP":"1.2.3.4"}}`,
		`{"metadata":{"name":"a","resourceVersion":"18446744073709551615","managedFields":[{"fieldsV1":{"f:labels":{}}}]}}`,
		`{"apiVersion":"v1","kind":"Pod","metadata":{"labels":{"k":"\u003c\"\\\t\ud83d\ude00"},"resourceVersion":"1"}}`,
		`{"metadata":{"resourceVersion":"1","name":null,"labels":null,"uid":null,"creationTimestamp":null},"spec":null,` +
			`"status":null}`,
		`{"metadata":{"name":"b","name":"a","resourceVersion":"6","labels":{"app":"y"},"labels":{"app":"x"}},"metadata":` +
			`{"resourceVersion":"7"}}`,
		`{"metadata":{"resourceVersion":"1"},"Metadata":{"name":"b"},"spec":{"nodeName":null,"hostNetwork":null},"spec":` +
			`{"hostNetwork":false}}`,
		"{\"metadata\":{\"name\":\"a\xff\xfe\",\"resourceVersion\":\"1\"},\"na\\u006de\":\"\\ud800\"}",
		` { "metadata" : { "resourceVersion" : "007" , "labels" : { "a" : null } } , "x" : [ 1e400, -0.5E+9, true, [[` +
			`{}]] ] } `,
		`{"metadata":{"resourceVersion":"1","name":"a/b","namespace":"n/m"}}`,
		`{"metadata":{"resourceVersion":"1","name":"a\u2028\u0000ü\ud83d\ude00\udc00","labels":{"\u00e4":"\/","ä":"é"}}}`,
		`{"metadata":{"resourceVersion":"1","generation":123456789012345678901234567890,"x":-0.0e-999},"spec":{"n":1E400,` +
			`"hostNetwork":false}}`,
		`{"x":` + strings.Repeat(`[{"a":`, 500) + `1` + strings.Repeat(`}]`, 500) + `,"metadata":{"resourceVersion":"1"}}`,
		`{"metadata":{"resourceVersion":"1"},"spec":` + strings.Repeat(`{"spec":`, 200) + `{"nodeName":"deep"}` +
			strings.Repeat(`}`, 200) + `}`,
		`{"kind":1,"metadata":{"resourceVersion":"\u0031"}}`,
		`{"metadata":{"resourceVersion":"1"}}` + "\x00", `{}`, `[]`, ``, `{"a":{]}`, `{"a":{{{{`, `{"a":,,,}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		builtin, err := pods.Parse(raw)
		checkParse(t, raw, builtin, err)
		custom := &Resource{GVR: pods.GVR, Kind: "Pod", Namespaced: true, fields: pods.fields, fieldIndex: pods.fieldIndex,
			paths: pods.paths}
		o, err := custom.Parse(raw)
		checkParse(t, raw, o, err)
	})
}

func checkParse(t *testing.T, raw []byte, o *Object, err error) {
	var want decodedPod
	if err != nil || json.Unmarshal(raw, &want) != nil {
		return
	}
	m := want.Metadata
	if rv, err := strconv.ParseUint(m.ResourceVersion, 10, 64); err != nil || o.RV != rv {
		t.Errorf("resourceVersion %d, want %q", o.RV, m.ResourceVersion)
	}
	if o.Key != m.Namespace+"/"+m.Name || string(o.UID) != m.UID || !maps.Equal(labelsOf(o), m.Labels) {
		t.Errorf("key %q, uid %q, labels %v, want %+v", o.Key, o.UID, labelsOf(o), m)
	}
	if !strings.Contains(m.Namespace+m.Name, "/") && (o.Namespace() != m.Namespace || o.Name() != m.Name) {
		t.Errorf("namespace %q, name %q, want %q and %q", o.Namespace(), o.Name(), m.Namespace, m.Name)
	}
	for label, value := range map[string]string{
		"spec.nodeName": want.Spec.NodeName, "spec.host": want.Spec.NodeName, "spec.hostNetwork": strconv.FormatBool(
			want.Spec.HostNetwork),
		"status.phase": want.Status.Phase, "status.podIP": want.Status.PodIP,
	} {
		if got := o.Fields().Get(label); got != value {
			t.Errorf("%s is %q, want %q", label, got, value)
		}
	}
	checkSplices(t, o)
}

// checkSplices reads the object again in each form that goes on the wire.
func checkSplices(t *testing.T, o *Object) {
	item := slices.Concat([]byte{'{'}, o.ItemMembers())
	alone := func(metadata []byte) []byte { return slices.Concat([]byte(`{"metadata":`), metadata, []byte{'}'}) }
	for rv, form := range map[uint64][]byte{
		o.RV: item, 12345678: o.AppendAt(nil, "12345678"), 1: alone(o.AppendMetadataAt(nil, "1")),
	} {
		again, err := o.resource.Parse(form)
		if err != nil || again.RV != rv || again.Key != o.Key || again.UID != o.UID ||
			!maps.Equal(labelsOf(again), labelsOf(o)) {
			t.Errorf("%s read again from %s: %+v, %v", o.JSON(), form, again, err)
		}
	}
}
