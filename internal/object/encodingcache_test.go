package object

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// formed makes forms of configmaps and counts them.
type formed struct {
	t        *testing.T
	resource *Resource
	objects  []*Object
	made     atomic.Int64
}

func newFormed(t *testing.T, n int, m *EncodingCache) *formed {
	f := &formed{t: t, resource: builtin("", "configmaps", "ConfigMap", true)}
	f.resource.Remember(m)
	for i := range n {
		f.objects = append(f.objects,
			mustParse(t, f.resource, fmt.Sprintf(`{"metadata":{"name":"%d","namespace":"n","resourceVersion":"%d"}}`, i, i+1)))
	}
	return f
}

// get asks for a form of 1000 bytes.
func (f *formed) get(i int, kind FormKind, rest ...*Object) {
	f.t.Helper()
	want := fmt.Sprintf("%d of %d and %d%s", kind, i, len(rest), strings.Repeat("x", 1000))[:1000]
	got, err := f.objects[i].Form(kind, rest...).Get(func() ([]byte, error) {
		f.made.Add(1)
		return []byte(want), nil
	})
	if err != nil || string(got) != want {
		f.t.Errorf("%q, %v; want %q", got, err, want)
	}
}

// expect compares how many forms have been made.
func (f *formed) expect(what string, want int64) {
	f.t.Helper()
	if n := f.made.Load(); n != want {
		f.t.Errorf("%s: %d forms were made, want %d", what, n, want)
	}
}

// A form is made once, however many ask at a time.
func TestFormIsMadeOnce(t *testing.T) {
	f := newFormed(t, 10, nil)
	var asking sync.WaitGroup
	for range 8 {
		asking.Go(func() {
			for i := range f.objects {
				f.get(i, 0)
				f.get(i, 1, f.objects[i:]...)
			}
		})
	}
	asking.Wait()
	f.expect("8 clients", 20)
}

// Runs are distinguished by their objects, and a few of each kind are kept.
func TestRuns(t *testing.T) {
	f := newFormed(t, 10, nil)
	for range 2 {
		for n := 1; n <= runsLimit; n++ {
			f.get(0, 1, f.objects[1:n]...)
		}
	}
	f.expect("different lengths", runsLimit)
	f.get(0, 0)
	f.get(0, 1, f.objects[5:8]...) // instead of the first
	f.get(0, 1, f.objects[1:2]...)
	f.expect("one more", runsLimit+2)
	f.get(0, 1)
	f.expect("the first again", runsLimit+3)
	f.get(0, 0)
	f.expect("the other kind", runsLimit+3)
}

// An EncodingCache holds no more than its limit, and what is used longest.
func TestMemoLimit(t *testing.T) {
	const fit = 20
	m := NewEncodingCache(fit * (1024 + formBytes))
	f := newFormed(t, 100, m)
	for round := range 5 {
		for i := range 10 {
			f.get(i, 0)
			f.get(90-round*10+i-10, 0) // never again
		}
	}
	if n := f.made.Load(); n < 60 || n > 70 {
		t.Errorf("%d forms were made of 10 that are always used and 50 that are not", n)
	}
	if m.mu.held > m.limit {
		t.Errorf("holds %d bytes of %d", m.mu.held, m.limit)
	}
	held := 0
	for _, o := range f.objects {
		if o.forms.Load() != nil {
			held++
		}
	}
	if held > fit || held != len(m.mu.slots)-len(m.mu.free) {
		t.Errorf("%d objects have forms, %d slots of which %d are free", held, len(m.mu.slots), len(m.mu.free))
	}
}

// What is larger than all that may be kept is made, and dropped.
func TestMemoOfNothing(t *testing.T) {
	f := newFormed(t, 1, NewEncodingCache(1000))
	for range 3 {
		f.get(0, 0)
	}
	f.expect("three times", 3)
	if f.objects[0].forms.Load() != nil {
		t.Error("it is kept")
	}
}

// Forms of objects that are gone are gone, and make room.
func TestMemoHoldsWeakly(t *testing.T) {
	m := NewEncodingCache(10 * (1000 + 2*formBytes))
	gone := newFormed(t, 10, m)
	for i := range gone.objects {
		gone.get(i, 0)
	}
	gone.objects = nil
	runtime.GC()
	alive := newFormed(t, 9, m)
	for range 3 {
		for i := range alive.objects {
			alive.get(i, 0)
		}
	}
	alive.expect("as if they were alone", 9)
}

// Where there is room for all of them, forms that are gone are forgotten too, as others come.
func TestMemoForgetsWhatIsGone(t *testing.T) {
	const alive, generations = 50, 20
	m := NewEncodingCache(1 << 30)
	for range generations {
		f := newFormed(t, alive, m)
		for i := range f.objects {
			f.get(i, 0)
		}
		f.objects = nil
		runtime.GC()
	}
	if n := len(m.mu.slots); n > 3*alive {
		t.Errorf("%d slots; at most %d forms were there at a time", n, alive)
	}
	if most := int64(3 * alive * (1024 + formBytes)); m.HeldBytes() > most {
		t.Errorf("%d bytes are counted; at most %d forms of 1000 were there at a time", m.HeldBytes(), alive)
	}
}

// An error is kept with the object; a maker that panics leaves one.
func TestFormErrors(t *testing.T) {
	f := newFormed(t, 1, NewEncodingCache(1<<20))
	asked := 0
	broken := errors.New("broken")
	for range 2 {
		if _, err := f.objects[0].Form(0).Get(func() ([]byte, error) { asked++; return nil, broken }); !errors.Is(
			err, broken) {
			t.Error(err)
		}
	}
	if asked != 1 {
		t.Errorf("asked %d times", asked)
	}
	func() {
		defer func() { _ = recover() }()
		_, _ = f.objects[0].Form(1).Get(func() ([]byte, error) { panic("bug") })
	}()
	if b, err := f.objects[0].Form(1).Get(func() ([]byte, error) { return []byte("x"), nil }); b != nil || err == nil {
		t.Errorf("%q after a panic", b)
	}
}

// What is forgone is dropped and made again each time; other kinds stay, and it is kept again when
// that is over.
func TestMemoForgoes(t *testing.T) {
	m := NewEncodingCache(1 << 20)
	f := newFormed(t, 10, m)
	all := func() {
		for i := range f.objects {
			f.get(i, 0)
			f.get(i, 1)
		}
	}
	all()
	all()
	f.expect("two kinds of ten", 20)
	held := m.HeldBytes()
	m.Disable(func(kind FormKind) bool { return kind == 1 })
	if m.HeldBytes() != held/2 {
		t.Errorf("holds %d bytes of %d", m.HeldBytes(), held)
	}
	all()
	all()
	f.expect("one kind is forgone", 40)
	m.Disable(func(FormKind) bool { return true })
	if m.HeldBytes() != 0 || f.objects[0].forms.Load() != nil {
		t.Errorf("holds %d bytes, and the first object %v", m.HeldBytes(), f.objects[0].forms.Load())
	}
	all()
	f.expect("both are", 60)
	m.Disable(nil)
	all()
	all()
	f.expect("none is", 80)
	if m.HeldBytes() != held {
		t.Errorf("holds %d bytes again, want %d", m.HeldBytes(), held)
	}
}

// A bound below the limit holds at once, and no longer than it is wanted; what is used stays.
func TestMemoBound(t *testing.T) {
	m := NewEncodingCache(1 << 20)
	f := newFormed(t, 20, m)
	all := func() {
		for i := range f.objects {
			f.get(i, 0)
		}
	}
	all()
	held := m.HeldBytes()
	m.Bound(held / 4)
	if m.HeldBytes() > held/4 || m.HeldBytes() == 0 {
		t.Errorf("holds %d bytes of %d", m.HeldBytes(), held)
	}
	made := f.made.Load()
	all()
	if m.HeldBytes() > held/4 || f.made.Load() == made {
		t.Errorf("holds %d bytes of %d, and made %d again", m.HeldBytes(), held, f.made.Load()-made)
	}
	m.Bound(1 << 40)
	all()
	made = f.made.Load()
	all()
	f.expect("there is room again", made)
	if m.HeldBytes() != held {
		t.Errorf("holds %d bytes again, want %d", m.HeldBytes(), held)
	}
}
