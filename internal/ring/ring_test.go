package ring

import (
	"runtime"
	"sync"
	"testing"
	"time"
)

func TestRingKeepsWhatIsNotTrimmed(t *testing.T) {
	f := func(start uint64, appends int, trim uint64, wantFirst uint64) {
		t.Helper()
		r := New[uint64](start)
		for i := range appends {
			if pos := r.Append(start + uint64(i)); pos != start+uint64(i) {
				t.Fatalf("append %d got position %d", i, pos)
			}
		}
		r.Trim(trim)
		if r.First() != wantFirst || r.Head() != start+uint64(appends) {
			t.Fatalf("start %d, %d appends, trim %d: [%d, %d), want first %d", start, appends, trim, r.First(), r.Head(),
				wantFirst)
		}
		for pos := start; pos < r.Head(); pos++ {
			item, ok := r.At(pos)
			if ok != (pos >= wantFirst) {
				t.Fatalf("At(%d) = %v", pos, ok)
			}
			if ok && *item != pos {
				t.Fatalf("At(%d) = %d", pos, *item)
			}
		}
	}
	f(0, 0, 0, 0)
	f(0, 1, 0, 0)
	f(1, 1000, 0, 1)
	f(1, 1000, 500, 500)
	f(7, chunkSize, 7+chunkSize, 7+chunkSize)
	f(7, 3*chunkSize+1, 1<<40, 7+3*chunkSize+1)
}

func TestRingAppendsAfterTrimmingAll(t *testing.T) {
	r := New[int](0)
	for i := range 10 * chunkSize {
		r.Append(i)
		r.Trim(r.Head())
	}
	r.AppendAll([]int{1, 2, 3})
	if item, ok := r.At(r.Head() - 1); !ok || *item != 3 {
		t.Fatalf("last item = %v, %v", item, ok)
	}
	if n := len(r.view.Load().chunks); n > 2 {
		t.Fatalf("%d chunks are kept for 3 items", n)
	}
}

// What was trimmed can be collected, also if nothing is appended any more.
func TestRingLetsGoOfWhatIsTrimmed(t *testing.T) {
	r := New[*[1 << 10]byte](0)
	freed := make(chan struct{}, 1)
	func() {
		first := new([1 << 10]byte)
		runtime.AddCleanup(first, func(c chan struct{}) { c <- struct{}{} }, freed)
		r.Append(first)
	}()
	for range 10 * chunkSize {
		r.Append(nil)
	}
	r.Trim(r.Head())
	for range 100 {
		runtime.GC()
		select {
		case <-freed:
			runtime.KeepAlive(r)
			return
		case <-time.After(time.Millisecond):
		}
	}
	t.Error("it is still held")
	runtime.KeepAlive(r)
}

// Readers at any pace see every item in order, or learn that they were lapped.
func TestRingManyReaders(t *testing.T) {
	const items = 20000
	r := New[uint64](1)
	var done sync.WaitGroup
	var s Signal
	for reader := range 8 {
		done.Go(func() {
			pos := uint64(1)
			for pos <= items {
				wait := s.Wait()
				if pos >= r.Head() {
					<-wait
					continue
				}
				item, ok := r.At(pos)
				if !ok {
					pos = r.First()
					continue
				}
				if *item != pos {
					t.Errorf("reader %d at %d saw %d", reader, pos, *item)
					return
				}
				pos++
			}
		})
	}
	batch := make([]uint64, 0, 7)
	for i := uint64(1); i <= items; i++ {
		if batch = append(batch, i); len(batch) == cap(batch) || i == items {
			r.AppendAll(batch)
			batch = batch[:0]
		}
		if i%1000 == 0 {
			r.Trim(i - 500)
		}
		s.Wake()
	}
	done.Wait()
}

func TestAppendAllocatesPerChunkOnly(t *testing.T) {
	r := New[uint64](0)
	per := testing.AllocsPerRun(10*chunkSize, func() {
		r.Append(1)
		if r.Head()%chunkSize == 0 {
			r.Trim(r.Head() - 1)
		}
	})
	if per > 0.1 {
		t.Fatalf("%v allocations per append", per)
	}
}

func BenchmarkAppend(b *testing.B) {
	r := New[uint64](0)
	for b.Loop() {
		r.Append(1)
		if r.Head()%chunkSize == 0 {
			r.Trim(r.Head() - chunkSize)
		}
	}
}
