package codec

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"spillway/internal/object"
)

// pieces remembers the sizes of what is written.
type pieces struct {
	sizes []int
	text  bytes.Buffer
}

func (p *pieces) Write(b []byte) (int, error) {
	p.sizes = append(p.sizes, len(b))
	return p.text.Write(b)
}

// A large list is written in pieces, so that nobody waits long for it to be through (D10a), and its objects are let go as they are
// written.
func TestListPieces(t *testing.T) {
	var items []*object.Object
	for i := range 4000 {
		items = append(items, parse(t, configmaps, fmt.Sprintf(`{"metadata":{"name":"%05d","namespace":"ns","resourceVersion":"%d"},"data":{"a":%q}}`,
			i, i+1, strings.Repeat("x", 300+i%100))))
	}
	for _, enc := range []object.Encoding{{}, protobufWhole} {
		l, err := NewList(enc, configmaps, items, metav1.ListMeta{ResourceVersion: "5000"})
		if err != nil {
			t.Fatal(err)
		}
		held := l.items
		if len(held) != 4000 {
			t.Fatalf("%d items", len(held))
		}
		l.items = slices.Clone(held) // which are let go
		var out pieces
		if n, err := l.WriteTo(&out); err != nil || n != int64(l.Size()) || out.text.Len() != l.Size() || n < 4*pieceSize {
			t.Fatalf("%d of %d bytes, %v", n, l.Size(), err)
		}
		for i, size := range out.sizes {
			if size > pieceSize+1024 || size < pieceSize && i < len(out.sizes)-1 {
				t.Errorf("piece %d of %d is %d bytes", i, len(out.sizes), size)
			}
		}
		if slices.ContainsFunc(l.items, func(o *object.Object) bool { return o != nil }) {
			t.Error("written objects are still held")
		}
	}
}
