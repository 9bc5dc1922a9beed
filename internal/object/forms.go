package object

import "sync"

// Forms are what has been made of one version of an object for other encodings. Each is made when it is first asked for, and
// once, however many clients ask; all of them go when the object goes. An object that is only ever asked for as JSON has none.
type Forms struct {
	// Message is the whole object as a protobuf message, without an envelope.
	Message Form
	// Metadata is the object's metadata as a protobuf message.
	Metadata Form
	// MetadataJSON is the object's metadata in Go's field order, where upstream's JSON of the object has another.
	MetadataJSON Form
}

// Forms are the object's.
func (o *Object) Forms() *Forms {
	if f := o.forms.Load(); f != nil {
		return f
	}
	o.forms.CompareAndSwap(nil, &Forms{})
	return o.forms.Load()
}

// Form is one of an object's Forms: its bytes, or why they could not be made.
type Form struct {
	once  sync.Once
	bytes []byte
	err   error
}

// Get returns what encode makes of o, which it is asked for once. The caller must not change it.
func (f *Form) Get(o *Object, encode func(*Object) ([]byte, error)) ([]byte, error) {
	f.once.Do(func() { f.bytes, f.err = encode(o) })
	return f.bytes, f.err
}
