package mirror

import (
	"context"
	"strconv"
	"time"

	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apimachinery "k8s.io/apimachinery/pkg/version"

	"spillway/internal/mirror/states"
	"spillway/internal/object"
	"spillway/internal/upstream/discovery"
)

const (
	// epochCheck is how often upstream is sent a request for its version at least, and for what else
	// makes it show objects otherwise without an event. All of that takes a restart of upstream, which
	// begins watches anew: that is looked for each watchCheck.
	epochCheck = 15 * time.Second
	watchCheck = time.Second
	// rollingUpgradeDuration is how long after another version was seen upstream may be a mixture of
	// both: as long all states are read again each rollingCheck, whichever apiserver answers then.
	//
	// minHintInterval and maxHintInterval are how long a watch that began is no reason to ask sooner,
	// after the one before was.
	rollingUpgradeDuration = 10 * time.Minute
	minHintInterval        = 5 * time.Second
	maxHintInterval        = time.Minute
	rollingCheck           = time.Minute
)

// epochs notices that upstream shows objects in another way than before, though nothing was written
// (design D2). Everything here belongs to one goroutine.
type epochs struct {
	mirrors *Set
	version apimachinery.Info
	minors  map[string]time.Time           // upstream's, and when each was last seen
	until   time.Time                      // of a rolling upgrade
	reread  time.Time                      // when all states were read last because of it
	storage map[*mirror]string             // storageVersionHash
	schemas map[schema.GroupVersion]string // hashes of OpenAPI documents
	checked time.Time                      // when upstream answered last
	watches uint64                         // begun by then
	hints   states.Pace                    // of watches that began, to ask for the version sooner
}

// newEpochs begins with the version that upstream had before anything was mirrored.
func newEpochs(s *Set, first apimachinery.Info) *epochs {
	return &epochs{
		mirrors: s, version: first, minors: map[string]time.Time{first.Minor: time.Now()},
		hints:   states.Pace{First: minHintInterval, Longest: maxHintInterval},
		storage: map[*mirror]string{}, schemas: map[schema.GroupVersion]string{},
	}
}

// run checks until ctx ends.
func (e *epochs) run(ctx context.Context) {
	tick := time.NewTicker(watchCheck)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			e.checkIfDue(ctx)
		case <-ctx.Done():
			return
		}
	}
}

func (e *epochs) checkIfDue(ctx context.Context) {
	begun := uint64(0)
	for _, m := range e.mirrors.all() {
		begun += m.reflector.Status().Watches
	}
	switch {
	case time.Since(e.checked) >= epochCheck:
		if e.check(ctx) {
			e.watches, e.checked = begun, time.Now()
		}
	case begun != e.watches && e.hints.Try(time.Now()) && e.checkVersion(ctx):
		e.watches = begun
	}
}

// checkVersion asks upstream for its version, and reports whether it answered.
func (e *epochs) checkVersion(ctx context.Context) bool {
	info, err := e.mirrors.client.Version(ctx)
	if err != nil {
		return false
	}
	e.sawVersion(*info)
	return true
}

// check asks upstream, and reports whether it answered.
func (e *epochs) check(ctx context.Context) bool {
	if !e.checkVersion(ctx) {
		return false
	}
	e.checkStorage(ctx)
	if e.mirrors.blind.Load() {
		e.checkSchemas(ctx)
	}
	return true
}

func (e *epochs) sawVersion(info apimachinery.Info) {
	now := time.Now()
	e.minors[info.Minor] = now
	e.mirrors.release.Upstream(e.greatestMinor())
	switch {
	case info != e.version:
		e.mirrors.log.Info("upstream is another version: what it shows is read again",
			zap.String("previousVersion", e.version.GitVersion),
			zap.String("version", info.GitVersion))
		e.version, e.until, e.reread = info, now.Add(rollingUpgradeDuration), now
		for _, m := range e.mirrors.all() {
			m.representation.doubt()
		}
	case now.Before(e.until) && now.Sub(e.reread) >= rollingCheck:
		e.reread = now
		for _, m := range e.mirrors.all() {
			m.representation.suspect()
		}
	}
}

// greatestMinor is the newest version of upstream's that has been seen lately: as long as some
// apiserver may send fields that are not known here, nothing is to be encoded anew.
func (e *epochs) greatestMinor() string {
	greatest, text := -1, ""
	for minor, seen := range e.minors {
		if time.Since(seen) > rollingUpgradeDuration {
			delete(e.minors, minor)
			continue
		}
		digits := 0
		for digits < len(minor) && minor[digits] >= '0' && minor[digits] <= '9' {
			digits++
		}
		n, err := strconv.Atoi(minor[:digits])
		if err != nil {
			return minor // not a number: nothing suffices for it
		}
		if n > greatest {
			greatest, text = n, minor
		}
	}
	return text
}

// checkStorage compares the storageVersionHash of each mirrored resource.
func (e *epochs) checkStorage(ctx context.Context) {
	all := e.mirrors.all()
	hashes := map[schema.GroupVersion]map[string]string{}
	storage := map[*mirror]string{}
	for _, m := range all {
		info := m.resource.Info
		before, ok := e.storage[m]
		if !ok {
			before = info.StorageHash
		}
		storage[m] = before
		gv := info.GVR.GroupVersion()
		if _, asked := hashes[gv]; !asked {
			hashes[gv], _ = discovery.ReadStorageHashes(ctx, e.mirrors.client, gv) // nil: not known this time
		}
		now := hashes[gv][info.GVR.Resource]
		if now == "" || now == before {
			continue
		}
		storage[m] = now
		if before != "" {
			m.representation.doubt()
		}
	}
	e.storage = storage
}

// checkSchemas compares the schemas of custom resources whose definitions may not be read. Another
// one is another definition.
func (e *epochs) checkSchemas(ctx context.Context) {
	hashes, err := discovery.ReadSchemaHashes(ctx, e.mirrors.client)
	if err != nil {
		return
	}
	for gv, hash := range hashes {
		if before := e.schemas[gv]; before != "" && before != hash {
			e.mirrors.reshaped(gv)
		}
		e.schemas[gv] = hash
	}
}

// reshaped hears that the schemas of a group and version have changed, where no definition tells
// which.
func (s *Set) reshaped(gv schema.GroupVersion) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.renew(func(gvr schema.GroupVersionResource, info *object.Resource) bool {
		return gvr.GroupVersion() == gv && (info == nil || !info.Builtin && info.Definition == "")
	}, "its schema has changed", (*mirror).end)
	s.restore(func(gvr schema.GroupVersionResource) bool { return gvr.GroupVersion() == gv })
}
