package upstream

import (
	"context"
	"sync"
	"time"
)

// probeInterval is how often upstream is probed while requests wait for it, or mirrors need to know
// whether it serves.
const probeInterval = time.Second

// servingProbes are the probes that the callers of Serves share. None belongs to one caller: it
// ends when upstream has answered, after probeTimeout, or with the Client.
type servingProbes struct {
	probe func(context.Context) bool

	mu   sync.Mutex
	last *servingProbe // nil before the first
}

// servingProbe is one probe.
type servingProbe struct {
	cancel context.CancelFunc
	done   chan struct{} // closed at its end, when the rest is set

	serves  bool
	endedAt time.Time
}

// latest is the last probe, unless that is too old: then it begins another one.
func (s *servingProbes) latest() *servingProbe {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.last != nil && !s.last.isOld() {
		return s.last
	}
	ctx, cancel := context.WithCancel(context.Background())
	p := &servingProbe{cancel: cancel, done: make(chan struct{})}
	s.last = p
	go func() {
		defer cancel()
		p.serves = s.probe(ctx)
		p.endedAt = time.Now()
		close(p.done)
	}()
	return p
}

func (p *servingProbe) isOld() bool {
	select {
	case <-p.done:
		return time.Since(p.endedAt) >= probeInterval
	default:
		return false
	}
}

// stop ends the probe under way.
func (s *servingProbes) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.last != nil {
		s.last.cancel()
	}
}
