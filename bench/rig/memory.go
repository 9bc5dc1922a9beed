package rig

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
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
	var alive int64
	for range 2 { // what has a finalizer survives the first
		var err error
		if alive, err = heapAlive(ctx, p.MetricsURL); err != nil {
			return Memory{}, err
		}
	}
	const goroutines, fds = "go_goroutines", "process_open_fds"
	m, err := p.Metrics().Read(ctx, goroutines, fds)
	if err != nil {
		return Memory{}, err
	}
	usage, err := p.Usage()
	return Memory{Heap: alive, RSS: usage.RSS, Goroutines: int(m.Sum(goroutines)), FDs: int(m.Sum(fds))}, err
}

// heapAlive collects garbage and reads how much is left, from the heap profile as text: what stands
// there was read before the profile was made. A metric read afterwards would count that, too, which
// is megabytes, and more the more places have ever been seen to allocate.
func heapAlive(ctx context.Context, url string) (int64, error) {
	body, err := Get(ctx, http.DefaultClient, url+"/debug/pprof/heap?gc=1&debug=1")
	if err != nil {
		return 0, err
	}
	defer body.Close()
	profile, err := io.ReadAll(body)
	if err != nil {
		return 0, err
	}
	const name = "\n# HeapAlloc = "
	_, rest, _ := bytes.Cut(profile, []byte(name))
	digits, _, _ := bytes.Cut(rest, []byte("\n"))
	alive, err := strconv.ParseInt(string(digits), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("the heap profile at %s has no line %q with a number: is that a Go process with --profiling?",
			url,
			strings.TrimSpace(name))
	}
	return alive, nil
}
