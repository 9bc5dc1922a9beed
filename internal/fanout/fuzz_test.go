package fanout

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"

	"spillway/internal/object"
)

// FuzzFrames: frames of any content, one after another, are read by apimachinery's own reader as
// what they were made of, in protobuf, in JSON, and compressed.
func FuzzFrames(f *testing.F) {
	f.Add("a", "", uint8(1), false)
	f.Add("name", "value\x00\xff\u2028", uint8(3), true)
	f.Fuzz(func(t *testing.T, name, value string, n uint8, zip bool) {
		text, _ := json.Marshal(map[string]any{"metadata": map[string]any{"name": name, "resourceVersion": "7"},
			"data": map[string]string{"k": value}})
		o, err := configmaps.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		for _, format := range []object.Format{object.Protobuf, object.JSON} {
			enc := object.Encoding{Format: format, Gzip: zip}
			var stream []byte
			for i := range int(n%8) + 1 {
				stream = made(AppendEvent(stream, enc, object.Type(i%3), o, uint64(i)))
			}
			for i, e := range readFrames(t, enc, stream, int(n%8)+1) {
				if want := object.Type(i % 3).String(); e.Type != want {
					t.Fatalf("frame %d is %q, want %q", i, e.Type, want)
				}
				want := made(AppendEvent(nil, enc.Bare(), object.Type(i%3), o, uint64(i)))
				if !bytes.Contains(want, e.Object.Raw) || len(e.Object.Raw) < len(value) {
					t.Fatalf("frame %d holds %q, which is not of %q", i, e.Object.Raw, want)
				}
			}
		}
	})
}

func readFrames(t *testing.T, enc object.Encoding, stream []byte, want int) []metav1.WatchEvent {
	t.Helper()
	plain := stream
	if enc.Gzip {
		z, err := gzip.NewReader(bytes.NewReader(stream))
		if err != nil {
			t.Fatal(err)
		}
		if plain, err = io.ReadAll(z); err != nil {
			t.Fatal(err)
		}
	}
	var out []metav1.WatchEvent
	frames, lines := protobuf.LengthDelimitedFramer.NewFrameReader(io.NopCloser(bytes.NewReader(plain))),
		json.NewDecoder(bytes.NewReader(plain))
	for buffer := make([]byte, len(plain)); ; {
		var e metav1.WatchEvent
		var err error
		if enc.Format == object.Protobuf {
			var n int
			if n, err = frames.Read(buffer); err == nil {
				err = e.Unmarshal(buffer[:n])
			}
		} else {
			err = lines.Decode(&e)
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(fmt.Errorf("frame %d: %w", len(out), err))
		}
		out = append(out, e)
	}
	if len(out) != want {
		t.Fatalf("%d frames, want %d", len(out), want)
	}
	return out
}
