package transport

import (
	"net/http"
	"sync"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"
)

// linkLimit is how many links are kept: probes come one at a time per resource, and few resources
// have many.
const linkLimit = 4

// Link is a transport that has at most one connection, under the credentials of a Factory.
type Link struct {
	http.RoundTripper
	idleSince time.Time
}

// HangUp closes the connection, if it is not in use.
func (l *Link) HangUp() { utilnet.CloseIdleConnectionsFor(l.RoundTripper) }

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
		if now.Sub(l.idleSince) < linkIdleTimeout {
			found = l
		} else {
			l.HangUp()
		}
	}
	p.mu.Unlock()
	if found != nil {
		return found, nil
	}
	rt, err := p.factory.Own(oneConnection)
	if err != nil {
		return nil, err
	}
	return &Link{RoundTripper: rt}, nil
}

// Put takes a link back.
func (p *Pool) Put(l *Link) {
	l.idleSince = time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || len(p.links) >= linkLimit {
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
