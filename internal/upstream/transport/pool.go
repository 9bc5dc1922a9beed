package transport

import (
	"net/http"
	"sync"
	"time"
)

const (
	// probeIdle is how long the connection of a probe is kept for the next.
	probeIdle = 30 * time.Second
	// probeLinks is how many are kept: probes come one at a time per resource, and few resources
	// have many.
	probeLinks = 4
)

// Link is a transport that has at most one connection, under the credentials of a Factory.
type Link struct {
	http.RoundTripper // with the credentials
	transport         *Transport
	idle              time.Time // since when
}

// HangUp closes the connection, if it is not in use.
func (l *Link) HangUp() { l.transport.CloseIdleConnections() }

// Pool keeps links that are not in use.
type Pool struct {
	factory *Factory

	mu     sync.Mutex
	links  []*Link
	closed bool
}

// Links is a pool of them.
func (f *Factory) Links() *Pool { return &Pool{factory: f} }

// Take returns a link that nothing else uses, the one used last if there are several.
func (p *Pool) Take() (*Link, error) {
	now := time.Now()
	p.mu.Lock()
	var found *Link
	for found == nil && len(p.links) > 0 {
		l := p.links[len(p.links)-1]
		p.links = p.links[:len(p.links)-1]
		if now.Sub(l.idle) < probeIdle {
			found = l
		} else {
			l.HangUp()
		}
	}
	p.mu.Unlock()
	if found != nil {
		return found, nil
	}
	t, rt, err := p.factory.own(single)
	if err != nil {
		return nil, err
	}
	return &Link{RoundTripper: rt, transport: t}, nil
}

// Put takes a link back.
func (p *Pool) Put(l *Link) {
	l.idle = time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || len(p.links) >= probeLinks {
		l.HangUp()
		return
	}
	p.links = append(p.links, l)
}

// Close closes the links that are not in use, and those that are put back from now on.
func (p *Pool) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	for _, l := range p.links {
		l.HangUp()
	}
	p.links = nil
}
