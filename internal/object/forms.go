package object

import (
	"errors"
	"slices"
	"sync"
	"sync/atomic"
)

// FormKind names what a Form holds. The packages that make forms define the kinds.
type FormKind uint8

// Form is one version of an object in another encoding, or a run of objects that begins with it:
// its bytes, or why they could not be made.
//
// It is made at its first use, and once, however many clients need it at a time. It is kept with
// the object and goes when that goes, or earlier if the resource's EncodingCache needs the room. A
// table beside the objects would have to follow each object that goes.
type Form struct {
	first *Object
	kind  FormKind
	rest  []uint64 // the serials of the objects that follow the first

	once  sync.Once
	bytes []byte
	err   error
	used  atomic.Bool // again, since the EncodingCache last looked
}

// runsLimit is how many runs of one kind an object keeps that begin with it: lists with different
// selectors have different runs.
const runsLimit = 4

// errAbandoned is why a form has no bytes if encode panicked.
var errAbandoned = errors.New("the form of an object was abandoned while it was made")

// Form is the form of this kind of the object alone, or of the run that it begins and rest goes on
// with.
func (o *Object) Form(kind FormKind, rest ...*Object) *Form {
	for {
		held := o.forms.Load()
		if f := held.find(kind, rest); f != nil {
			return f
		}
		f := &Form{first: o, kind: kind}
		for _, other := range rest {
			f.rest = append(f.rest, other.serial)
		}
		if o.forms.CompareAndSwap(held, held.with(f)) {
			return f
		}
	}
}

// Get returns what encode makes, which is called once. The caller must not change it.
func (f *Form) Get(encode func() ([]byte, error)) ([]byte, error) {
	made := false
	f.once.Do(func() {
		made = true
		f.err = errAbandoned
		f.bytes, f.err = encode()
		f.first.resource.encodings.Load().keep(f)
	})
	if !made && !f.used.Load() { // a needless store would take the cache line from other processors
		f.used.Store(true)
	}
	return f.bytes, f.err
}

// formBytes is about how many bytes a form takes beside its content.
const formBytes = 256

// size is the number of bytes that the form takes.
func (f *Form) size() int64 { return int64(cap(f.bytes) + 8*len(f.rest) + formBytes) }

// drop makes the object forget the form. Readers that hold its bytes go on with them.
func (f *Form) drop() {
	for {
		held := f.first.forms.Load()
		if f.first.forms.CompareAndSwap(held, held.without(f)) {
			return
		}
	}
}

// forms are those of one object, the newest last. Immutable; nil has none.
type forms []*Form

func (held *forms) find(kind FormKind, rest []*Object) *Form {
	if held == nil {
		return nil
	}
	for _, f := range *held {
		if f.kind == kind && slices.EqualFunc(f.rest, rest, func(serial uint64, o *Object) bool {
			return serial == o.serial
		}) {
			return f
		}
	}
	return nil
}

// with are these and f, without the oldest of its kind if there are too many.
func (held *forms) with(f *Form) *forms {
	if held == nil {
		return &forms{f}
	}
	next := make(forms, 0, len(*held)+1)
	same, oldest := 0, -1
	for _, other := range *held {
		if other.kind == f.kind {
			if same++; oldest < 0 {
				oldest = len(next)
			}
		}
		next = append(next, other)
	}
	if same >= runsLimit {
		next = slices.Delete(next, oldest, oldest+1)
	}
	next = append(next, f)
	return &next
}

func (held *forms) without(f *Form) *forms {
	if held == nil {
		return nil
	}
	next := slices.DeleteFunc(slices.Clone(*held), func(other *Form) bool { return other == f })
	if len(next) == 0 {
		return nil
	}
	return &next
}
