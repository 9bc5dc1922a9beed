package rig

import (
	"context"
	"io"
	"net/http"
)

// Memory is what a proxy holds on to.
type Memory struct {
	Heap       int64 // bytes alive after a garbage collection
	RSS        int64 // bytes
	Goroutines int
	FDs        int
}

// Memory collects garbage and reads what is left. RSS follows the heap with a delay.
func (p *Proxy) Memory(ctx context.Context) (Memory, error) {
	// Twice: what has a finalizer survives the first.
	for range 2 {
		body, err := Get(ctx, http.DefaultClient, p.MetricsURL+"/debug/pprof/heap?gc=1")
		if err != nil {
			return Memory{}, err
		}
		_, err = io.Copy(io.Discard, body)
		body.Close()
		if err != nil {
			return Memory{}, err
		}
	}
	const heap, goroutines, fds = "go_memstats_heap_alloc_bytes", "go_goroutines", "process_open_fds"
	m, err := p.Metrics().Read(ctx, heap, goroutines, fds)
	if err != nil {
		return Memory{}, err
	}
	usage, err := p.Usage()
	return Memory{Heap: int64(m.Sum(heap)), RSS: usage.RSS, Goroutines: int(m.Sum(goroutines)), FDs: int(m.Sum(fds))}, err
}
