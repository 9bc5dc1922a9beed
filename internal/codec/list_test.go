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

// writes remembers the sizes of what is written.
type writes struct {
	sizes []int
	text  bytes.Buffer
}

func (w *writes) Write(b []byte) (int, error) {
	w.sizes = append(w.sizes, len(b))
	return w.text.Write(b)
}

// manyConfigmaps are large enough for several pieces and many segments.
func manyConfigmaps(t testing.TB) []*object.Object {
	var items []*object.Object
	for i := range 4000 {
		items = append(items, configmap(t, i, i+1, 300+i%100))
	}
	return items
}

func configmap(t testing.TB, i, rv, size int) *object.Object {
	return parse(t, configmaps,
		fmt.Sprintf(`{"metadata":{"name":"%05d","namespace":"ns","resourceVersion":"%d"},"data":{"a":%q}}`,
			i, rv, strings.Repeat(fmt.Sprint(i*7919%1000), size/3)))
}

// A large list is written in pieces, so that no event waits long for its end (D10a), and its
// objects are released as they are written.
func TestListPieces(t *testing.T) {
	items := manyConfigmaps(t)
	for _, enc := range []object.Encoding{{}, protobufWhole, {View: object.Metadata}} {
		l, err := NewList(enc, configmaps, items, metav1.ListMeta{ResourceVersion: "5000"})
		if err != nil {
			t.Fatal(err)
		}
		if len(l.parts) != 4000 {
			t.Fatalf("%d items", len(l.parts))
		}
		var out writes
		if n, err := l.WriteTo(&out); err != nil || n != int64(l.Size()) || out.text.Len() != l.Size() || n < pieceBytes {
			t.Fatalf("%d of %d bytes, %v", n, l.Size(), err)
		}
		for i, size := range out.sizes {
			if size > pieceBytes || size < pieceBytes && i < len(out.sizes)-1 {
				t.Errorf("piece %d of %d is %d bytes", i, len(out.sizes), size)
			}
		}
		if l.items != nil || slices.ContainsFunc(l.parts, func(part []byte) bool { return part != nil }) {
			t.Error("written objects are still held")
		}
	}
}

// failing is a client that goes away.
type failing struct{ after int }

func (f *failing) Write(b []byte) (int, error) {
	if f.after -= len(b); f.after < 0 {
		return 0, fmt.Errorf("gone")
	}
	return len(b), nil
}

// Nothing is written to a client that is gone.
func TestListToClientThatLeft(t *testing.T) {
	items := manyConfigmaps(t)
	made := func() *List {
		l, err := NewList(object.Encoding{}, configmaps, items, metav1.ListMeta{ResourceVersion: "5000"})
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	if n, err := made().WriteTo(&failing{after: 2 * pieceBytes}); err == nil || n != 2*pieceBytes {
		t.Errorf("%d bytes, %v", n, err)
	}
	if n, err := made().Compress().WriteTo(&failing{after: 100}); err == nil || n != 0 {
		t.Errorf("%d bytes, %v", n, err)
	}
}
