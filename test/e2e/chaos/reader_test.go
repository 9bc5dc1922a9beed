package chaos

import (
	"context"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// reader requests states and objects, mostly at once after a write was acknowledged, and mostly the
// most recent ones.
type reader struct {
	*client
	resource schema.GroupVersionResource
	writer   *writer
	ask      func() ask
	all, red *receivedEvents

	// Guarded by mu.
	mu       sync.Mutex
	readings []reading
	proven   int // consistent states, of all teams, so far
}

func newReader(c *client, r schema.GroupVersionResource, w *writer, ask func() ask) *reader {
	return &reader{
		client: c, resource: r, writer: w, ask: ask,
		all: &receivedEvents{name: "reader of " + r.Resource, view: view{resource: r.Resource}},
		red: &receivedEvents{name: "reader of red " + r.Resource, view: view{resource: r.Resource, team: teams[0]}},
	}
}

// consistent is how many consistent states it received.
func (r *reader) consistent() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.proven
}

// made are the GETs so far.
func (r *reader) made() []reading {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.readings[:len(r.readings):len(r.readings)]
}

func (r *reader) run(ctx context.Context) {
	defer r.http.CloseIdleConnections()
	newest := uint64(0) // that it received
	for {
		acked := r.writer.wait(ctx)
		if ctx.Err() != nil {
			return
		}
		a, q, j, own := r.ask(), url.Values{}, r.all, false
		switch n := rand.IntN(10); {
		case n < 2 && acked.done:
			r.read(ctx, acked, a)
			continue
		case n < 3:
			j = r.red
			q.Set("labelSelector", teamLabel+"="+teams[0])
		case n < 5:
			q.Set("resourceVersion", "0")
			a.floor, a.era, own = 0, 0, true
		case n < 6 && newest > 0:
			q.Set("resourceVersion", strconv.FormatUint(newest, 10))
			q.Set("resourceVersionMatch", "NotOlderThan")
			a.floor, a.era, own = newest, 0, true
		}
		n := r.list(ctx, collectionPath(r.resource, ""), q, a)
		if ctx.Err() != nil {
			return
		}
		j.add(n)
		if n.kind == "listed" {
			newest = n.version.rv
			if !own && j == r.all {
				r.mu.Lock()
				r.proven++
				r.mu.Unlock()
			}
		}
	}
}

// read requests the object that was written last.
func (r *reader) read(ctx context.Context, acked ack, a ask) {
	namespace, name, _ := strings.Cut(acked.key, "/")
	var o object
	refusal := r.answered(ctx, collectionPath(r.resource, namespace)+"/"+name, nil, &o)
	done := reading{era: a.era, key: acked.key, acked: acked}
	switch {
	case refusal == nil:
		done.found = o.version()
	case refusal.code == http.StatusNotFound && strings.Contains(refusal.text, `"reason":"NotFound"`):
		done.found = version{gone: true}
	case ctx.Err() != nil:
		return
	default:
		r.all.add(*refusal)
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.readings = append(r.readings, done)
}
