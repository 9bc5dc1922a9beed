package codec

import (
	"bytes"
	stdgzip "compress/gzip"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	kgzip "github.com/klauspost/compress/gzip"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"spillway/internal/object"
)

// compressed is a list as a gzip member, and its content by its own encoding.
func compressed(t testing.TB, enc object.Encoding, r *object.Resource, items []*object.Object, meta metav1.ListMeta) (
	member, content []byte) {
	t.Helper()
	var bare, out bytes.Buffer
	for range 2 { // the first WriteTo uses a list up
		l, err := NewList(enc, r, items, meta)
		if err != nil {
			t.Fatal(err)
		}
		if bare.Len() == 0 {
			_, err = l.WriteTo(&bare)
		} else {
			c := l.Compress()
			var n int64
			n, err = c.WriteTo(&out)
			if out.Len() != c.Size() || n != int64(c.Size()) {
				t.Fatalf("%d bytes, wrote %d, said %d", out.Len(), n, c.Size())
			}
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return out.Bytes(), bare.Bytes()
}

// gunzip reads exactly one gzip member, with the readers that clients have.
func gunzip(t testing.TB, member []byte) []byte {
	t.Helper()
	in := bytes.NewReader(member)
	std, err := stdgzip.NewReader(in)
	if err != nil {
		t.Fatal(err)
	}
	std.Multistream(false)
	content, err := io.ReadAll(std)
	if err != nil || in.Len() != 0 {
		t.Fatalf("%v, %d bytes are left", err, in.Len())
	}
	other, err := kgzip.NewReader(bytes.NewReader(member))
	if err != nil {
		t.Fatal(err)
	}
	if again, err := io.ReadAll(other); err != nil || !bytes.Equal(again, content) {
		t.Fatalf("readers disagree: %v", err)
	}
	return content
}

// A compressed list is one gzip member of the list, in every encoding.
func TestCompressedLists(t *testing.T) {
	items := manyConfigmaps(t)
	items = append(items, configmap(t, 4000, 4001, 3*segmentMaxBytes), configmap(t, 4001, 4002, 20))
	for _, enc := range []object.Encoding{
		{}, {View: object.Metadata}, {View: object.MetadataV1beta1}, protobufWhole,
		{Format: object.Protobuf, View: object.Metadata}, {Format: object.Protobuf, View: object.MetadataV1beta1},
	} {
		for _, meta := range []metav1.ListMeta{{ResourceVersion: "5000"},
			{ResourceVersion: "5000", Continue: strings.Repeat("abc", storedBytesLimit)}} {
			for _, n := range []int{0, 1, 2, 3, len(items)} {
				member, content := compressed(t, enc, configmaps, items[len(items)-n:], meta)
				if !bytes.Equal(gunzip(t, member), content) {
					t.Errorf("%+v, %d items: another list", enc, n)
				}
			}
		}
	}
}

// segmentsOf are the segments of a list of items.
func segmentsOf(t testing.TB, items []*object.Object) []segment {
	t.Helper()
	l, err := NewList(object.Encoding{}, configmaps, items, metav1.ListMeta{ResourceVersion: "5000"})
	if err != nil {
		t.Fatal(err)
	}
	var all []segment
	l.eachSegment(func(from, to int) { all = append(all, l.segment(from, to)) })
	return all
}

// fresh counts the segments that are not among those made before.
func fresh(now, before []segment) int {
	n := 0
	for _, s := range now {
		if !slices.ContainsFunc(before, func(b segment) bool { return &b[0] == &s[0] }) {
			n++
		}
	}
	return n
}

// What has been compressed is not compressed again: of a list in which something changed, only the
// segment it changed in; of one in which something came or went, also those beside it. A list of a
// part shares what lies inside.
func TestSegmentsAreShared(t *testing.T) {
	items := manyConfigmaps(t)
	first := segmentsOf(t, items)
	if len(first) < 10 {
		t.Fatalf("only %d segments", len(first))
	}
	if n := fresh(segmentsOf(t, items), first); n > 0 {
		t.Errorf("%d of %d segments were made again", n, len(first))
	}
	changed := slices.Clone(items)
	changed[1234] = configmap(t, 1234, 6000, 311)
	if n := fresh(segmentsOf(t, changed), first); n != 1 {
		t.Errorf("after a change, %d segments were made again", n)
	}
	if n := fresh(segmentsOf(t, slices.Delete(slices.Clone(items), 1234, 1235)), first); n < 1 || n > 4 {
		t.Errorf("after a deletion, %d segments were made again", n)
	}
	if n := fresh(segmentsOf(t, slices.Insert(slices.Clone(items), 1234, configmap(t, 9999, 6000, 311))), first); n < 1 ||
		n > 4 {
		t.Errorf("after an addition, %d segments were made again", n)
	}
	part := segmentsOf(t, items[700:3300])
	if n := fresh(part, first); n > 6 || n > len(part)/2 {
		t.Errorf("of a part's %d segments, %d were made", len(part), n)
	}
	// The same objects, parsed again, may have other bytes.
	if n := fresh(segmentsOf(t, manyConfigmaps(t)), first); n != len(first) {
		t.Errorf("%d of %d segments of other objects", n, len(first))
	}
}

// A member is made once for a run in an encoding, and again for any other run or encoding.
func TestMembersAreShared(t *testing.T) {
	items := manyConfigmaps(t)
	made := 0
	member := func(enc object.Encoding, run []*object.Object) {
		t.Helper()
		m, err := Member(enc, run, func() ([]byte, error) {
			made++
			return []byte(run[0].Key), nil
		})
		if err != nil || string(gunzip(t, m)) != run[0].Key {
			t.Errorf("%q, %v", m, err)
		}
	}
	json, protobuf := object.Encoding{Gzip: true}, object.Encoding{Format: object.Protobuf, Gzip: true}
	for want, ask := range []func(){
		func() {}, func() { member(json, items[:5]) }, func() { member(protobuf, items[:5]) }, func() {
			member(json, items[:6])
		}, func() { member(json, items[1:6]) },
	} {
		for range 3 {
			ask()
		}
		if made != want {
			t.Errorf("%d members were made, want %d", made, want)
		}
	}
	if _, err := Member(json, items[10:12], func() ([]byte, error) {
		return nil, io.ErrNoProgress
	}); err != io.ErrNoProgress {
		t.Errorf("one that cannot be made: %v", err)
	}
}

// Segments stay within their bounds, whatever the sizes of items.
func TestSegmentSizes(t *testing.T) {
	for _, size := range []int{1, 100, 3000, 40 << 10, 100 << 10} {
		var items []*object.Object
		for i := range max(50, (4<<20)/(size+100)) {
			items = append(items, configmap(t, i, i+1, size))
		}
		sizes, total := 0, 0
		for i, s := range segmentsOf(t, items) {
			_, _, n := s.sums()
			if n > segmentMaxBytes+2*size+1000 {
				t.Errorf("segment %d of items of %d bytes has %d", i, size, n)
			}
			sizes, total = sizes+1, total+n
		}
		if mean := total / sizes; mean < min(segmentMinBytes, total) || mean > 2*segmentTargetBytes+2*size {
			t.Errorf("items of %d bytes: %d segments of %d bytes on average", size, sizes, mean)
		}
	}
}

// FuzzCompress: whatever the items are, and whatever was compressed before, a compressed list is
// the list.
func FuzzCompress(f *testing.F) {
	f.Add([]byte("some names"), uint64(1000), []byte{3, 200, 7}, "")
	f.Add([]byte{0, 0, 0, 1, 255}, uint64(90000), []byte{1}, "token")
	f.Add([]byte{}, uint64(0), []byte{}, "")
	f.Fuzz(func(t *testing.T, shape []byte, unit uint64, changes []byte, token string) {
		var items []*object.Object
		for i, b := range shape[:min(len(shape), 64)] {
			items = append(items, configmap(t, i, i+1, int(unit%100_000)*int(b%8)/4))
		}
		meta := metav1.ListMeta{ResourceVersion: "5000", Continue: fmt.Sprintf("%x", token)}
		for _, enc := range []object.Encoding{{}, protobufWhole} {
			for round := range 3 {
				member, content := compressed(t, enc, configmaps, items, meta)
				if !bytes.Equal(gunzip(t, member), content) {
					t.Fatalf("round %d: another list", round)
				}
				for _, at := range changes[:min(len(changes), 8)] {
					if len(items) > 0 {
						i := int(at) % len(items)
						items[i] = configmap(t, i, 6000+round, int(at)*10)
					}
				}
			}
		}
	})
}
