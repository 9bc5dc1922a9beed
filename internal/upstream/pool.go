package upstream

import (
	"net/http"
	"sync"
	"time"

	"k8s.io/client-go/rest"
)

const (
	// probeIdle is how long the connection of a probe is kept for the next.
	probeIdle = 30 * time.Second
	// probeLinks is how many are kept: probes come one at a time per resource, and few resources have many.
	probeLinks = 4
)

// link is a transport that has at most one connection, under the proxy's own credentials.
type link struct {
	transport    *http.Transport
	roundTripper http.RoundTripper // transport with the credentials
	idle         time.Time         // since when
}

func (l *link) hangUp() { l.transport.CloseIdleConnections() }

// pool keeps links that are not in use. A link that was idle too long is thrown away, and with it the certificate that it read from a file:
// this is how a renewed one is noticed.
type pool struct {
	cfg *rest.Config

	mu     sync.Mutex
	links  []*link
	closed bool
}

// take returns a link that nobody else uses, the one used last if there are several.
func (p *pool) take() (*link, error) {
	now := time.Now()
	p.mu.Lock()
	var found *link
	for found == nil && len(p.links) > 0 {
		l := p.links[len(p.links)-1]
		p.links = p.links[:len(p.links)-1]
		if now.Sub(l.idle) < probeIdle {
			found = l
		} else {
			l.hangUp()
		}
	}
	p.mu.Unlock()
	if found != nil {
		return found, nil
	}
	return newLink(p.cfg)
}

func newLink(cfg *rest.Config) (*link, error) {
	cfg = rest.CopyConfig(cfg)
	cfg.NextProtos = []string{"http/1.1"}
	t, err := newTransport(cfg, false)
	if err != nil {
		return nil, err
	}
	t.MaxConnsPerHost = 1
	t.IdleConnTimeout = probeIdle
	rt, err := rest.HTTPWrappersForConfig(cfg, t)
	if err != nil {
		return nil, err
	}
	return &link{transport: t, roundTripper: rt}, nil
}

// put takes a link back.
func (p *pool) put(l *link) {
	l.idle = time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || len(p.links) >= probeLinks {
		l.hangUp()
		return
	}
	p.links = append(p.links, l)
}

func (p *pool) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	for _, l := range p.links {
		l.hangUp()
	}
	p.links = nil
}
