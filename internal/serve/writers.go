package serve

import (
	"runtime"
	"sync"
	"sync/atomic"
)

// writers is the deliverer that needs no goroutine per stream: each is a slot of one of a few writers, from its initial events to its
// end. The initial events are made and sent by the goroutine that came with it, since they wait, for proofs and for their client.
type writers struct {
	shards []*writer
	next   atomic.Uint32
	done   sync.WaitGroup
}

// newWriters starts writers; they end with the server's base. Half of the processors are theirs: the rest have to make what they send.
func newWriters(s *Server) *writers {
	d := &writers{}
	for range max(1, runtime.GOMAXPROCS(0)/2) {
		d.shards = append(d.shards, newWriter(s))
	}
	d.start(s)
	return d
}

func (d *writers) start(s *Server) {
	for _, w := range d.shards {
		d.done.Go(func() { w.run(s.base) })
	}
}

func (d *writers) deliver(s *stream) {
	reason, err := s.initial()
	switch {
	case reason != "" || err != nil:
		goroutines{}.finish(s, nil, reason, err)
	case !s.plan.Selector.Light(): // it may have to be asked about a log that is long
		goroutines{}.live(s)
	case !d.shards[int(d.next.Add(1))%len(d.shards)].adopt(s):
		goroutines{}.live(s)
	}
}

// wait returns when the writers have ended.
func (d *writers) wait() { d.done.Wait() }
