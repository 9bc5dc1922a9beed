package serve

import (
	"io"

	"spillway/internal/cache"
	"spillway/internal/fairness"
	"spillway/internal/object"
)

// gzipRatio is about how much smaller objects are when they are compressed.
const gzipRatio = 8

// widthOf is what a large answer of so many bytes counts as.
func widthOf(size int64, compressed bool) int64 {
	if compressed {
		size /= gzipRatio
	}
	return max(size, leastWidth)
}

// leastWidth is what a large answer counts at least: while it waits for its client it keeps the pieces that it is sent in, here and
// in the kernel, however small a part of the whole they are.
const leastWidth = 192 << 10

// limitedBody is the body of an answer that has a pass until it is closed.
type limitedBody struct {
	io.WriterTo
	pass  fairness.Pass
	haste *haste
}

// WriteTo implements io.WriterTo.
func (b *limitedBody) WriteTo(w io.Writer) (int64, error) {
	b.haste.start()
	defer b.haste.started()
	return b.WriterTo.WriteTo(w)
}

// Close implements io.Closer.
func (b *limitedBody) Close() error {
	b.pass.Release()
	return nil
}

// large tells the bodies that are not written at once.
func large(size int64) bool { return size < 0 || size > 64<<10 }

// pinnedBy is what a large body of so many bytes keeps alive.
func pinnedBy(size int64) int64 { return max(size, leastWidth) }

// stateWidth is about what the state counts as that the watch begins with; 0 if there is none, or only a small one.
func (s *stream) stateWidth() int64 {
	switch s.plan.Watch.Start {
	case StateAny, StateAtLeast, StateConsistent:
	default:
		return 0
	}
	size := sizeOf(s.plan.Source.Resource().Snapshot(), s.plan.Selector)
	if !large(size) {
		return 0
	}
	return widthOf(size, s.plan.Encoding.Gzip)
}

// measuredMost is how many objects are asked about to tell how large a part of a state is selected.
const measuredMost = 5000

// sizeOf is about how many bytes of JSON are selected of a state: exactly, unless many objects would have to be asked about.
func sizeOf(state *cache.Snapshot, sel object.Selector) int64 {
	switch {
	case state == nil:
		return 0
	case !large(state.Bytes), sel.ScopeOnly() && sel.Namespace == "" && sel.Name == "":
		return state.Bytes
	}
	scope := sel // where they are looked up
	everywhere := sel.Namespace == "" && sel.Name == "" && !state.Finds(sel)
	if !state.Finds(sel) {
		scope = object.NewSelector(sel.Namespace, sel.Name, nil, nil)
	}
	var asked, selected, total int64
	n := 0
	state.Scan(scope, "", func(o *object.Object) bool {
		size := int64(o.Size())
		total += size
		if n++; n <= measuredMost {
			asked += size
			if sel.Matches(o) {
				selected += size
			}
		}
		return n <= measuredMost || !everywhere
	})
	switch {
	case n <= measuredMost:
		return selected
	case everywhere:
		total = state.Bytes
	}
	return int64(float64(selected) * float64(total) / float64(asked))
}
