package exchange

import (
	"bytes"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/client-go/kubernetes/scheme"
)

func document(t *testing.T, o runtime.Object) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := protobuf.NewSerializer(scheme.Scheme, scheme.Scheme).Encode(o, &b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func configMapList(version, value string) *corev1.ConfigMapList {
	return &corev1.ConfigMapList{
		TypeMeta: metav1.TypeMeta{Kind: "ConfigMapList", APIVersion: "v1"},
		ListMeta: metav1.ListMeta{ResourceVersion: version},
		Items:    []corev1.ConfigMap{{Data: map[string]string{"k": value}}},
	}
}

// frame is one event of a watch in protobuf.
func frame(t *testing.T, typ string, o runtime.Object) []byte {
	t.Helper()
	raw, err := (&metav1.WatchEvent{Type: typ, Object: runtime.RawExtension{Raw: document(t, o)}}).Marshal()
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if _, err := protobuf.LengthDelimitedFramer.NewFrameWriter(&b).Write(raw); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func answerIn(kind string, body []byte) *Answer {
	return &Answer{Status: http.StatusOK, Header: http.Header{"Content-Type": {kind}}, Body: body, Length: len(body)}
}

// TestProtobuf: answers in protobuf are compared by what they say, with the same numbers left aside
// as in JSON (W-132, W-133).
func TestProtobuf(t *testing.T) {
	bookmark := func(version string) *corev1.ConfigMap {
		return &corev1.ConfigMap{TypeMeta: metav1.TypeMeta{Kind: "ConfigMap", APIVersion: "v1"},
			ObjectMeta: metav1.ObjectMeta{
				ResourceVersion: version, Annotations: map[string]string{metav1.InitialEventsAnnotationKey: "true"},
			}}
	}
	named := func(name string) *corev1.ConfigMap {
		o := bookmark("7")
		o.Name, o.Annotations = name, nil
		return o
	}
	watch := func(frames ...[]byte) []byte { return bytes.Join(frames, nil) }
	for _, c := range []struct {
		name, kind      string
		direct, proxied []byte
		problem         string
	}{
		{"a list of another moment", protobufType, document(t, configMapList("7", "x")), document(t, configMapList("9", "x")),
			""},
		{"a list of something else", protobufType, document(t, configMapList("7", "x")), document(t, configMapList("7", "y")),
			"body"},
		{"no document", protobufType, document(t, configMapList("7", "x")), []byte("k8s\x00nonsense"),
			"a document in protobuf"},
		{
			"a bookmark of another moment", protobufType + ";stream=watch",
			watch(frame(t, "ADDED", named("a")), frame(t, "BOOKMARK", bookmark("8"))),
			watch(frame(t, "ADDED", named("a")), frame(t, "BOOKMARK", bookmark("9"))), "",
		},
		{"another event", protobufType + ";stream=watch", watch(frame(t, "ADDED", named("a"))),
			watch(frame(t, "ADDED", named("b"))), "event 0"},
		{"an event too few", protobufType + ";stream=watch", watch(frame(t, "ADDED", named("a"))), nil, "event 0"},
		{"a frame cut short", protobufType + ";stream=watch", watch(frame(t, "ADDED", named("a"))),
			frame(t, "ADDED", named("a"))[:20], "a frame in protobuf"},
	} {
		t.Run(c.name, func(t *testing.T) {
			result := Compare(NewTally(), Request{Target: "/api/v1/configmaps"}, answerIn(c.kind, c.direct),
				answerIn(c.kind, c.proxied))
			said := strings.Join(result.Problems, "\n")
			if (c.problem == "") != (said == "") || !strings.Contains(said, c.problem) {
				t.Errorf("want a problem with %q, have %q", c.problem, said)
			}
		})
	}
}
