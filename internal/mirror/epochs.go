package mirror

import (
	"context"
	"maps"
	"strconv"
	"strings"
	"time"

	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apimachinery "k8s.io/apimachinery/pkg/version"

	"spillway/internal/mirror/states"
	"spillway/internal/upstream/discovery"
)

const (
	// epochCheckInterval is the longest interval between readings of upstream's version, and of all
	// else that makes upstream show objects differently without an event.
	epochCheckInterval = 15 * time.Second
	// watchCheckInterval is the interval between looks at the number of watches begun, which grows
	// when upstream restarts.
	watchCheckInterval = time.Second
	// minHintInterval and maxHintInterval are the intervals between readings of the version because
	// watches have begun.
	minHintInterval = 5 * time.Second
	maxHintInterval = time.Minute
	// rollingUpgradeDuration is how long after a new version was seen upstream may be a mixture of
	// both. As long, all states are read again each rollingCheckInterval, because any API server may
	// have answered.
	rollingUpgradeDuration = 10 * time.Minute
	rollingCheckInterval   = time.Minute
)

// epochs notices that upstream shows objects in another way than before, though nothing was written
// (design D2). One goroutine owns it.
type epochs struct {
	mirrors *Set

	version    apimachinery.Info
	minors     map[string]time.Time // upstream's minor versions, and when each was last seen
	upgradeEnd time.Time            // of a rolling upgrade
	rereadAt   time.Time            // when all states were last read again because of it

	storageHashes map[*mirror]string             // storageVersionHash
	schemaHashes  map[schema.GroupVersion]string // of OpenAPI documents

	checkedAt   time.Time   // when upstream last answered a check
	watches     uint64      // how many watches of upstream had begun when the version was last read
	watchesPace states.Pace // of readings of the version because further watches have begun
}

// newEpochs begins with the version that upstream had before anything was mirrored.
func newEpochs(s *Set, first apimachinery.Info) *epochs {
	return &epochs{
		mirrors: s, version: first, minors: map[string]time.Time{first.Minor: time.Now()},
		watchesPace:   states.Pace{First: minHintInterval, Longest: maxHintInterval},
		storageHashes: map[*mirror]string{}, schemaHashes: map[schema.GroupVersion]string{},
	}
}

// run checks until ctx ends.
func (e *epochs) run(ctx context.Context) {
	tick := time.NewTicker(watchCheckInterval)
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
	watches := uint64(0)
	for _, m := range e.mirrors.all() {
		watches += m.reflector.Status().Watches
	}
	switch {
	case time.Since(e.checkedAt) >= epochCheckInterval:
		if e.check(ctx) {
			e.watches, e.checkedAt = watches, time.Now()
		}
	case watches != e.watches && e.watchesPace.Try(time.Now()) && e.checkVersion(ctx):
		e.watches = watches
	}
}

// check reads all that tells how upstream shows objects, and reports whether it answered.
func (e *epochs) check(ctx context.Context) bool {
	if !e.checkVersion(ctx) {
		return false
	}
	e.checkStorage(ctx)
	if e.mirrors.definitionsHidden.Load() {
		e.checkSchemas(ctx)
	}
	return true
}

// checkVersion reads upstream's version, and reports whether it answered.
func (e *epochs) checkVersion(ctx context.Context) bool {
	info, err := e.mirrors.client.Version(ctx)
	if err != nil {
		return false
	}
	e.noteVersion(*info)
	return true
}

func (e *epochs) noteVersion(info apimachinery.Info) {
	now := time.Now()
	e.minors[info.Minor] = now
	e.forgetOldMinors()
	e.mirrors.release.SetUpstream(e.greatestMinor())
	switch {
	case info != e.version:
		e.mirrors.log.Info("upstream is another version: what it shows is read again",
			zap.String("previousVersion", e.version.GitVersion),
			zap.String("version", info.GitVersion))
		e.version, e.upgradeEnd, e.rereadAt = info, now.Add(rollingUpgradeDuration), now
		for _, m := range e.mirrors.all() {
			m.representation.doubt()
		}
	case now.Before(e.upgradeEnd) && now.Sub(e.rereadAt) >= rollingCheckInterval:
		e.rereadAt = now
		for _, m := range e.mirrors.all() {
			m.representation.suspect()
		}
	}
}

// forgetOldMinors forgets the minor versions that no API server has had for the duration of an
// upgrade.
func (e *epochs) forgetOldMinors() {
	maps.DeleteFunc(e.minors, func(_ string, seen time.Time) bool { return time.Since(seen) > rollingUpgradeDuration })
}

// greatestMinor is the newest minor version that an API server of upstream may have. Objects of a
// newer version than this program's may have fields that are unknown here, so they are not encoded
// in another form.
func (e *epochs) greatestMinor() string {
	greatest, text := -1, ""
	for minor := range e.minors {
		suffix := strings.TrimLeft(minor, "0123456789") // such as the + of a provider
		n, err := strconv.Atoi(strings.TrimSuffix(minor, suffix))
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
	served := map[schema.GroupVersion]map[string]string{} // hashes by resource; nil: unknown this time
	seen := map[*mirror]string{}
	for _, m := range e.mirrors.all() {
		info := m.resource.Info
		before, ok := e.storageHashes[m]
		if !ok {
			before = info.StorageHash
		}
		seen[m] = before
		gv := info.GVR.GroupVersion()
		if _, ok := served[gv]; !ok {
			served[gv], _ = discovery.ReadStorageHashes(ctx, e.mirrors.client, gv)
		}
		now := served[gv][info.GVR.Resource]
		if now == "" || now == before {
			continue
		}
		seen[m] = now
		if before != "" {
			m.representation.doubt()
		}
	}
	e.storageHashes = seen
}

// checkSchemas compares the schemas of custom resources whose definitions may not be read. Another
// schema is another definition.
func (e *epochs) checkSchemas(ctx context.Context) {
	hashes, err := discovery.ReadSchemaHashes(ctx, e.mirrors.client)
	if err != nil {
		return
	}
	for gv, hash := range hashes {
		if before := e.schemaHashes[gv]; before != "" && before != hash {
			e.mirrors.applySchemaChange(gv)
		}
		e.schemaHashes[gv] = hash
	}
}
