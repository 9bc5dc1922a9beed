package watch

import (
	"maps"
	"slices"
	"sync"
	"time"

	"spillway/internal/object"
)

// endStats are the watches that have ended: how many for each reason, and who was evicted last.
type endStats struct {
	mu      sync.Mutex
	counts  map[EndReason]uint64
	evicted []Eviction // oldest first
}

// Eviction is a watch that was ended since its client stopped reading. It keeps no Source, which
// would keep a mirror's whole state long after the mirror was given up.
type Eviction struct {
	At       time.Time
	Resource *object.Resource
	Selected Selected
	User     string // "" if nobody asked
	Agent    string
	Client   string
	Began    time.Time
	Bytes    int64
}

// evictionsKept is how many are remembered.
const evictionsKept = 20

func (e *endStats) note(st *Stream, reason EndReason) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.counts == nil {
		e.counts = map[EndReason]uint64{}
	}
	e.counts[reason]++
	if reason != EndSlowClientStalled {
		return
	}
	if len(e.evicted) == evictionsKept {
		e.evicted = slices.Delete(e.evicted, 0, 1)
	}
	e.evicted = append(e.evicted, Eviction{
		At: time.Now(), Resource: st.plan.Source.Resource().Info, Selected: st.selection(), User: st.client.name(),
		Agent: st.client.userAgent(), Client: st.out.client(), Began: st.began(),
		Bytes: st.bytes.Load(),
	})
}

// EndCounts is how many watches have ended for each reason that one has ended for, and the last few
// evictions, oldest first.
func (m *Manager) EndCounts() (map[EndReason]uint64, []Eviction) {
	m.ended.mu.Lock()
	defer m.ended.mu.Unlock()
	return maps.Clone(m.ended.counts), slices.Clone(m.ended.evicted)
}
