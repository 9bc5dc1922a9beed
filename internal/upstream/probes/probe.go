package probes

import (
	"context"
	"errors"
	"io"
	"net/http/httptrace"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"spillway/internal/object"
	"spillway/internal/upstream"
	"spillway/internal/upstream/transport"
	"spillway/internal/upstream/wire"
)

const (
	// proofSeconds is the shortest timeoutSeconds that gets a bookmark, after 0.7–1.7 s (W-111).
	proofSeconds = 3
	// proofGrace is how much longer we wait for upstream to end the watch.
	proofGrace = 2 * time.Second
)

// Prober finds out how fresh a mirror must be, and whether it is (design D7). Safe for use by many
// goroutines; how many probes run at once is the caller's choice.
type Prober struct {
	client   *upstream.Client
	resource *object.Resource

	mu    sync.Mutex
	stats ProbeStats
}

// ProbeStats counts the requests of a Prober.
type ProbeStats struct {
	Probes           uint64 // calls of Begin
	Proofs           uint64 // calls of Prove
	WithoutBookmark  uint64 // proofs that ended without a bookmark
	OtherConnections uint64 // proofs that travelled on another connection than their probe
	States           uint64 // calls of State
	Failures         uint64 // any of these calls, with an error
}

// The purposes of requests, with which their User-Agent ends.
const (
	probePurpose    = "probe"    // how far upstream is, and what it can do
	checkPurpose    = "check"    // an exact state, with which a mirror is compared
	backfillPurpose = "backfill" // history
)

// New sends nothing yet.
func New(c *upstream.Client, r *object.Resource) *Prober { return &Prober{client: c, resource: r} }

// Stats is the counts so far.
func (p *Prober) Stats() ProbeStats {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stats
}

// count changes the counts.
func (p *Prober) count(change func(*ProbeStats)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change(&p.stats)
}

// Probe is one connection to an API server that was just made current. It belongs to one goroutine,
// and must be closed.
//
// It is HTTP/1.1 and one connection, because nothing else keeps a balancer from sending the proof
// to an API server that the LIST did not make current. Behind two of them the proof never came.
type Probe struct {
	prober *Prober
	link   *transport.Link // nil once closed
}

// Progress is the result of a proof watch: it has seen all events in (from, Bookmark] or, without a
// bookmark, in (from, Last].
type Progress struct {
	// Bookmark is 0 if the watch ended without one. Upstream sends none while it would be no greater
	// than from (W-111).
	Bookmark uint64
	Events   int
	Last     uint64 // the version of the last event, 0 if there was none
	// SameConnection says that the proof travelled on the connection of its probe.
	SameConnection bool
}

// Begin reads the store's revision: the version of a LIST of the resource that starts now (W-211c).
func (p *Prober) Begin(ctx context.Context) (revision uint64, probe *Probe, err error) {
	p.count(func(s *ProbeStats) { s.Probes++ })
	revision, link, err := takeCurrent(ctx, p.client, p.resource, probePurpose)
	if err != nil {
		p.count(func(s *ProbeStats) { s.Failures++ })
		return 0, nil, err
	}
	return revision, &Probe{prober: p, link: link}, nil
}

// takeCurrent takes a connection, and makes its API server current by reading the revision.
func takeCurrent(ctx context.Context, c *upstream.Client, r *object.Resource, purpose string) (uint64, *transport.Link,
	error) {
	link, err := c.Links().Take()
	if err != nil {
		return 0, nil, err
	}
	rv, err := c.Revision(ctx, r, link, purpose)
	if err != nil {
		link.HangUp()
		return 0, nil, err
	}
	return rv, link, nil
}

// pathIn is the path of a resource in one namespace.
func pathIn(r *object.Resource, namespace string) string {
	path := r.Path()
	i := strings.LastIndexByte(path, '/')
	return path[:i] + "/namespaces/" + url.PathEscape(namespace) + path[i:]
}

// request is one for metadata.
func (p *Prober) request(verb string, o metav1.ListOptions) upstream.GetRequest {
	r := upstream.GetRequestFor(verb, p.resource, o)
	r.OnlyMetadata, r.Purpose = true, probePurpose
	return r
}

// Prove watches from the version that the mirror has reached until upstream's first bookmark
// (W-211i), or the end of the watch after 3 s.
func (p *Probe) Prove(ctx context.Context, from uint64) (Progress, error) {
	if p.link == nil {
		return Progress{}, errors.New("BUG: the probe is closed")
	}
	if from == 0 {
		return Progress{}, errors.New("BUG: a proof needs a version to start from") // 0 would send the whole state
	}
	p.prober.count(func(s *ProbeStats) { s.Proofs++ })
	watching, cancel := context.WithTimeout(ctx, proofSeconds*time.Second+proofGrace)
	defer cancel()
	progress, err := p.watch(watching, from)
	if err != nil {
		p.hangUp()
		if !errors.Is(ctx.Err(), context.Canceled) { // else the mirror got there first: the proof is not needed any more
			p.prober.count(func(s *ProbeStats) { s.Failures++ })
		}
		return progress, err
	}
	if progress.Bookmark == 0 {
		p.prober.count(func(s *ProbeStats) { s.WithoutBookmark++ })
	}
	if !progress.SameConnection {
		p.prober.count(func(s *ProbeStats) { s.OtherConnections++ })
	}
	return progress, nil
}

func (p *Probe) watch(ctx context.Context, from uint64) (progress Progress, err error) {
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn: func(info httptrace.GotConnInfo) { progress.SameConnection = info.Reused },
	})
	r := p.prober.request("watch", metav1.ListOptions{
		AllowWatchBookmarks: true, ResourceVersion: strconv.FormatUint(from, 10),
		TimeoutSeconds: new(int64(proofSeconds)),
	})
	r.Via = p.link
	body, err := p.prober.client.Get(ctx, r)
	if err != nil {
		return progress, err
	}
	defer body.Close()
	err = progress.read(wire.NewLines(body))
	return progress, err
}

// read takes events until the first bookmark. An end is no error.
func (p *Progress) read(in *wire.Lines) error {
	for {
		line, err := in.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		t, raw, err := wire.SplitEvent(line)
		if err != nil {
			return err
		}
		if t == watch.Error {
			return wire.StatusError(raw)
		}
		v, err := wire.ParseVersion(raw)
		if err != nil {
			return err
		}
		if t == watch.Bookmark {
			p.Bookmark = v.RV
			return nil
		}
		p.Events++
		p.Last = v.RV
	}
}

// Close gives the connection back. Idempotent.
func (p *Probe) Close() {
	if p.link != nil {
		p.prober.client.Links().Put(p.link)
		p.link = nil
	}
}

func (p *Probe) hangUp() {
	p.link.HangUp()
	p.link = nil
}

// errNoBookmark says that a watch did not reach the revision.
var errNoBookmark = errors.New("upstream did not say in time how far it is")

// ProveThrough reads how far upstream is, for a mirror of the resource that is complete through
// from. The mirror holds everything that was acknowledged before the call once it is complete
// through last, after which nothing happened up to reached. A reached below from says that
// upstream's history has been rewritten.
//
// It sends a LIST of one item. Unless that finds the mirror at upstream's own version, it sends a
// watch of up to three seconds on the same connection: the version alone proves nothing about what
// the mirror's watch has delivered (W-211, W-212).
func (p *Prober) ProveThrough(ctx context.Context, from uint64) (last, reached uint64, err error) {
	revision, probe, err := p.Begin(ctx)
	if err != nil {
		return 0, 0, err
	}
	defer probe.Close()
	if revision <= from {
		return from, revision, nil
	}
	progress, err := probe.Prove(ctx, from)
	if err != nil {
		return 0, 0, err
	}
	if reached = max(progress.Bookmark, progress.Last); reached < revision {
		return 0, 0, errNoBookmark
	}
	return max(progress.Last, from), reached, nil
}
