package codec

import (
	"encoding/json"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"spillway/internal/object"
)

// FuzzMessage: whatever JSON an object has, its message says the same or there is none, at its own
// resourceVersion and at another; and no bytes at all make the splice of a resourceVersion panic.
func FuzzMessage(f *testing.F) {
	for _, seed := range []string{
		`{"metadata":{"name":"a","resourceVersion":"7"},"data":{"a":"\u003c\ud83d\ude00"}}`,
		`{"metadata":{"name":"a","resourceVersion":"7","creationTimestamp":"2026-11-20T10:16:03Z","labels":{"a":""},` +
			`"ownerReferences":[{"uid":"u","controller":true}],` +
			`"managedFields":[{"fieldsV1":{"f:data":{}},"time":"2026-11-20T10:16:03Z"}]},"binaryData":{"b":"AAEC"},` +
			`"immutable":false}`,
		`{"metadata":{"resourceVersion":"1","generation":9223372036854775807,"deletionGracePeriodSeconds":0}}`,
		`{"metadata":{"resourceVersion":"1"},"data":null}`,
		"k8s\x00\x0a\x0f", "\x0a\x02\x32\x00", "\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
	} {
		f.Add([]byte(seed), uint64(1000))
	}
	f.Fuzz(func(t *testing.T, raw []byte, rv uint64) {
		_, _ = withVersion(raw, rv)
		o, err := configmaps.Parse(raw)
		if err != nil {
			return
		}
		for _, at := range []uint64{o.RV, rv} {
			msg, err := messageAt(object.Whole, o, at)
			if err != nil {
				return
			}
			text := o.JSON()
			if at != o.RV {
				text = o.AppendAt(nil, itoa(at))
			}
			var want, got corev1.ConfigMap
			if err := json.Unmarshal(text, &want); err != nil {
				t.Fatalf("%v in %s, which has a message", err, text)
			}
			want.TypeMeta = metav1.TypeMeta{}
			if err := got.Unmarshal(msg); err != nil {
				t.Fatal(err)
			}
			if a, b := printed(t, &got), printed(t, &want); a != b {
				t.Fatalf("%s\nis now %s\nwant   %s", text, a, b)
			}
		}
	})
}

func printed(t *testing.T, o *corev1.ConfigMap) string {
	t.Helper()
	text, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
