package codec

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"spillway/internal/object"
)

// BenchmarkEncode is what an object version costs once per form, and what it costs from then on.
func BenchmarkEncode(b *testing.B) {
	_, pod := sample(b, corev1.SchemeGroupVersion.WithKind("Pod"), 7)
	b.Run("message", func(b *testing.B) {
		b.ReportAllocs()
		b.SetBytes(int64(pod.Size()))
		for b.Loop() {
			if _, err := encodeWhole(pod); err != nil {
				b.Fatal(err)
			}
		}
	})
	for name, enc := range map[string]object.Encoding{
		"protobuf again": protobufWhole, "metadata again": {Format: object.Protobuf, View: object.Metadata}, "metadata JSON": {View: object.Metadata},
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
