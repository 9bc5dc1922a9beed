package fakeapiserver

import (
	"context"
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Reads names the requests that StallReads stops.
type Reads int

// Each stops what those above it stop, and more.
const (
	NoReads         Reads = iota // nothing is stalled
	ConsistentReads              // what needs storage: resourceVersion unset, as if etcd did not answer (W-66)
	AllReads                     // every GET, LIST and new watch
)

// faults are what the test asked for that does not belong to one resource. Guarded by Server.mu.
type faults struct {
	lists, probes, watches failure
	stall                  Reads
}

// failure answers the next left requests with code.
type failure struct{ left, code int }

// take is the code for a request, 0 if it does not fail.
func (f *failure) take() int {
	if f.left == 0 {
		return 0
	}
	f.left--
	return f.code
}

// take is the code for a request, 0 if it does not fail.
func (f *faults) take(verb string, isProbe bool) int {
	switch {
	case verb == verbWatch:
		return f.watches.take()
	case verb != verbList:
		return 0
	case isProbe && f.probes.left > 0:
		return f.probes.take()
	}
	return f.lists.take()
}

// injectFault fails a read or lets it wait, as the test asked for.
func (s *Server) injectFault(r *http.Request, verb string) error {
	if verb == verbNone {
		return nil
	}
	query := r.URL.Query()
	s.mu.Lock()
	code := s.faults.take(verb, query.Get("limit") == "1")
	s.mu.Unlock()
	if code != 0 {
		return injected(code)
	}
	reads := AllReads
	if verb != verbWatch && query.Get("resourceVersion") == "" {
		reads = ConsistentReads
	}
	if !s.awaitReads(r.Context(), reads) {
		return errRequestTimeout
	}
	return nil
}

// awaitReads waits while StallReads stops such reads. False means that the request is over.
func (s *Server) awaitReads(ctx context.Context, reads Reads) bool {
	return s.awaitHolding(ctx, func() bool { return s.faults.stall < reads }) == nil
}

// do runs f with mu held on the table of a resource and wakes what waits for it.
func (s *Server) do(gvr schema.GroupVersionResource, f func(*table)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.table(gvr)
	f(t)
	t.rouse()
	s.changedLocked()
}

// DelayWatch delivers every later change to the open watches d after it was stored; 0 delivers at
// once what is still waiting.
func (s *Server) DelayWatch(gvr schema.GroupVersionResource, d time.Duration) {
	s.do(gvr, func(t *table) {
		if t.delay = d; d == 0 {
			t.release(t.end())
		}
	})
}

// HoldWatch delivers nothing more to the open watches, while LIST, GET and the history of new
// watches show every write (W-212).
func (s *Server) HoldWatch(gvr schema.GroupVersionResource) {
	s.do(gvr, func(t *table) { t.held = true })
}

// ReleaseWatch delivers what HoldWatch held back, and everything from then on.
func (s *Server) ReleaseWatch(gvr schema.GroupVersionResource) {
	s.do(gvr, func(t *table) {
		t.held = false
		t.release(t.end())
	})
}

// LoseEvents withholds the next n changes from the watches that are open then, while everything
// else shows them, bookmarks included. No real server has this bug.
func (s *Server) LoseEvents(gvr schema.GroupVersionResource, n int) {
	s.do(gvr, func(t *table) { t.losing = n })
}

// CorruptDelete deletes an object that can no longer be decoded: watches receive an ERROR event of
// reason StorageReadError in place of its deletion, and end, as those of kube-apiserver since 1.37.
func (s *Server) CorruptDelete(gvr schema.GroupVersionResource, namespace, name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.table(gvr)
	if old, ok := t.objects.Get(t.kind.key(namespace, name)); ok {
		s.commitLocked(t, &change{RV: s.rev + 1, Old: old, corrupt: true})
	}
}

// SuppressBookmarks stops all bookmarks but the end of the initial events; false sends them again.
func (s *Server) SuppressBookmarks(gvr schema.GroupVersionResource, on bool) {
	s.do(gvr, func(t *table) { t.noBookmarks = on })
}

// Progress does what any consistent read does besides: tells all watch caches the current revision,
// so that bookmarks move (W-111).
func (s *Server) Progress() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.progressLocked()
}

// DropWatches ends all open watches of a resource cleanly, without ERROR (W-113).
func (s *Server) DropWatches(gvr schema.GroupVersionResource) {
	s.do(gvr, func(t *table) { t.stopStreams(endClean) })
}

// CutWatches aborts all open watches of a resource: half an event, then the connection is closed.
func (s *Server) CutWatches(gvr schema.GroupVersionResource) {
	s.do(gvr, func(t *table) { t.stopStreams(endCut) })
}

// ForgetHistory restarts the watch cache of a resource: its watches end cleanly and older
// resourceVersions are 410 for a watch (W-115). Exact LISTs still work, as they come from storage.
func (s *Server) ForgetHistory(gvr schema.GroupVersionResource) {
	s.do(gvr, func(t *table) {
		t.forget(s.rev)
		t.stopStreams(endClean)
	})
}

// Compact makes storage forget every state before the current revision: exact LISTs and continue
// tokens below it are 410 (W-67, W-83).
func (s *Server) Compact() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.compacted = s.rev
}

// Reshape changes the bytes of all objects of a resource, without a revision or an event, and ends
// its watches cleanly. A change of a CRD does that, and an upgrade of the API server.
func (s *Server) Reshape(gvr schema.GroupVersionResource, edit Edit) {
	s.do(gvr, func(t *table) {
		reshaped := new(objects)
		t.objects.Scan(func(key string, o *Obj) bool {
			m := o.tree()
			edit(m)
			fresh, err := t.kind.object(m, o.RV)
			if err != nil {
				panic("BUG: Reshape: " + err.Error())
			}
			reshaped.Set(key, fresh)
			return true
		})
		t.reset(reshaped, s.rev)
		t.stopStreams(endClean)
	})
}

// Restart is a crash of the API server: every connection is closed, every watch history is gone,
// the data are the same.
func (s *Server) Restart() {
	s.mu.Lock()
	s.restartLocked()
	s.mu.Unlock()
	s.listener.cut()
}

func (s *Server) restartLocked() {
	for _, t := range s.order {
		t.forget(s.rev)
		t.stopStreams(endCut)
		t.rouse()
	}
	s.changedLocked()
}

// Snapshot is a copy of storage at one revision.
type Snapshot struct {
	rev     uint64
	objects map[schema.GroupVersionResource]*objects
}

// Snapshot copies storage as it is now.
func (s *Server) Snapshot() *Snapshot {
	s.mu.Lock()
	defer s.mu.Unlock()
	snap := &Snapshot{rev: s.rev, objects: map[schema.GroupVersionResource]*objects{}}
	for gvr, t := range s.tables {
		snap.objects[gvr] = t.objects.Copy()
	}
	return snap
}

// RestoreFrom puts storage back to a snapshot, as an etcd restored from a backup: the revision goes
// back, the API server restarts.
func (s *Server) RestoreFrom(snap *Snapshot) {
	s.mu.Lock()
	s.rev, s.compacted = snap.rev, snap.rev
	for gvr, t := range s.tables {
		t.reset(snap.objects[gvr].Copy(), snap.rev)
	}
	s.restartLocked()
	s.mu.Unlock()
	s.listener.cut()
}

// Down closes the listener and all connections: clients are refused.
func (s *Server) Down() {
	s.listener.down()
	s.listener.cut()
}

// Hang closes all connections and answers no new one: the kernel accepts it, and no process reads
// it.
func (s *Server) Hang() {
	s.listener.freeze()
	s.listener.cut()
}

// Freeze stops the API server where it is, as SIGSTOP does: all connections stay open, nothing is
// read or sent on them, and the kernel accepts others.
func (s *Server) Freeze() { s.listener.freeze() }

// Up ends Down, Hang and Freeze. Elsewhere than on Linux it fails if the port was taken meanwhile.
func (s *Server) Up() error { return s.listener.up() }

// FailLists answers the next n LISTs with an HTTP status and kube-apiserver's text for it. A 429
// has a Retry-After.
func (s *Server) FailLists(n, code int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults.lists = failure{n, code}
}

// FailProbes answers the next n LISTs of a single object (limit=1) with an HTTP status. A proxy
// sends such a LIST to find the version that the store has reached.
func (s *Server) FailProbes(n, code int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults.probes = failure{n, code}
}

// FailWatches answers the next n watch requests with an HTTP status.
func (s *Server) FailWatches(n, code int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults.watches = failure{n, code}
}

// StallReads lets the named reads wait until it is called again, or RequestTimeout.
func (s *Server) StallReads(which Reads) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults.stall = which
	s.changedLocked()
}
