package codec

import (
	"fmt"
	"io"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"spillway/internal/object"
)

// BenchmarkEncode is what an object version costs once per form, and what it costs from then on.
func BenchmarkEncode(b *testing.B) {
	_, pod := sample(b, corev1.SchemeGroupVersion.WithKind("Pod"), 7)
	b.Run("message", func(b *testing.B) {
		b.ReportAllocs()
		b.SetBytes(int64(pod.Size()))
		for b.Loop() {
			if _, err := marshalItem(pod.Resource(), pod.JSON()); err != nil {
				b.Fatal(err)
			}
		}
	})
	for name, enc := range map[string]object.Encoding{
		"protobuf again": protobufWhole, "metadata again": {Format: object.Protobuf, View: object.Metadata},
		"metadata JSON": {View: object.Metadata},
	} {
		b.Run(name, func(b *testing.B) {
			var dst []byte
			b.ReportAllocs()
			for b.Loop() {
				var err error
				if dst, err = Append(dst[:0], enc, pod, pod.RV); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	b.Run("gzip member", func(b *testing.B) {
		var dst []byte
		b.ReportAllocs()
		b.SetBytes(int64(pod.Size()))
		for b.Loop() {
			dst = AppendMember(dst[:0], pod.JSON())
		}
	})
}

// BenchmarkList is what a list of 5000 pods of 7 KiB costs beside the socket: with everything made
// before, and for gzip also after fifty of them changed.
func BenchmarkList(b *testing.B) {
	pods := object.NewResource(schema.GroupVersionResource{Version: "v1", Resource: "pods"}, "Pod", true, true)
	version := 0
	pod := func(i int) *object.Object {
		version++
		var env strings.Builder
		for e := range 80 {
			fmt.Fprintf(&env, `{"name":"SETTING_%d","value":"%x"},`, e, uint64(i*80+e+1)*0x9e3779b97f4a7c15)
		}
		return parse(b, pods, fmt.Sprintf(
			`{"metadata":{"name":"web-%05d","namespace":"n","uid":"%x","resourceVersion":"%d","labels":{"app":"web-%d"}},`+
				`"spec":{"containers":[{"name":"c","image":"registry.example/web:%d","env":[%s{"name":"LAST","value":"%s"}],`+
				`"resources":{}}],"nodeName":"node-%d"},"status":{"phase":"Running"}}`,
			i, i*7919, version, i%100, i%7, env.String(), strings.Repeat("x", 2000), i%50))
	}
	items := make([]*object.Object, 5000)
	for i := range items {
		items[i] = pod(i)
	}
	for _, c := range []struct {
		name    string
		enc     object.Encoding
		changed int
	}{
		{"json", object.Encoding{}, 0}, {"json gzip", object.Encoding{Gzip: true}, 0},
		{"json gzip, 1 % changed", object.Encoding{Gzip: true}, 50},
		{"protobuf", protobufWhole, 0}, {"protobuf gzip", object.Encoding{Format: object.Protobuf, Gzip: true}, 0},
		{"metadata", object.Encoding{View: object.Metadata}, 0},
		{"metadata protobuf", object.Encoding{Format: object.Protobuf, View: object.Metadata}, 0},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			step := 0
			for warm := true; warm || b.Loop(); warm = false {
				if !warm && c.changed > 0 {
					b.StopTimer()
					for range c.changed {
						step = (step + 3571) % len(items)
						items[step] = pod(step)
					}
					b.StartTimer()
				}
				l, err := NewList(c.enc, pods, items, metav1.ListMeta{ResourceVersion: "9999999"})
				if err != nil {
					b.Fatal(err)
				}
				var body io.WriterTo = l
				if c.enc.Gzip {
					body = l.Compress()
				}
				if n, err := body.WriteTo(io.Discard); err != nil || n == 0 {
					b.Fatal(n, err)
				}
			}
		})
	}
}
