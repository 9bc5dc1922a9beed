package simulation

import (
	"spillway/internal/cache"
	"spillway/internal/fanout"
	"spillway/internal/object"
)

// faults are what a run is made to do wrong, to see that the oracle sees it. None is the zero
// value.
type faults struct {
	onSource   func(*stream, source) source
	onResume   func(s *Simulation, rv uint64, sel object.Selector, enc object.Encoding) (source, error)
	onStart    func(*cache.Snapshot) uint64
	onProof    func(rv uint64) uint64
	late       bool // the head is sent, and then the place in history is fixed
	onDispatch func(*Simulation)
	onSelector func(*client) object.Selector
	onFinish   func(*stream, []byte) []byte
	onRest     func()
}

func (f *faults) source(s *stream, c source) source {
	if f.onSource == nil || c == nil {
		return c
	}
	return f.onSource(s, c)
}

func (f *faults) resume(s *Simulation, rv uint64, sel object.Selector, enc object.Encoding) (source, error) {
	if f.onResume != nil {
		return f.onResume(s, rv, sel, enc)
	}
	return resume(s, rv, sel, enc)
}

func resume(s *Simulation, rv uint64, sel object.Selector, enc object.Encoding) (source, error) {
	c, err := s.hub.ViewFor("").CursorFromRV(rv, sel, enc)
	if err != nil {
		return nil, err
	}
	return c, nil
}

func (f *faults) start(snapshot *cache.Snapshot) uint64 {
	if f.onStart == nil {
		return snapshot.Next
	}
	return f.onStart(snapshot)
}

func (f *faults) proof(rv uint64) uint64 {
	if f.onProof == nil {
		return rv
	}
	return f.onProof(rv)
}

func (f *faults) dispatch(s *Simulation) {
	if f.onDispatch == nil {
		s.hub.Dispatch()
		return
	}
	f.onDispatch(s)
}

func (f *faults) finish(s *stream, last []byte) []byte {
	if f.onFinish == nil {
		return last
	}
	return f.onFinish(s, last)
}

func (f *faults) release() {
	if f.onRest != nil {
		f.onRest()
	}
}

// selector is the client's selector, as the hub gets it.
func (c *client) selector() object.Selector {
	if c.sim.faults.onSelector == nil {
		return c.filter.selector()
	}
	return c.sim.faults.onSelector(c)
}

var _ source = (*fanout.Cursor)(nil)
