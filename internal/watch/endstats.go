package watch

import (
	"maps"
	"slices"
	"sync"
	"time"

	"spillway/internal/object"
)

// endStats counts the watches that have ended by reason, and holds the last evictions.
type endStats struct {
	mu        sync.Mutex
	counts    map[EndReason]uint64
	evictions []Eviction // oldest first
}

// Eviction is a watch that ended because its client read too slowly, or nothing. It holds no
// Source, which would hold the whole state of a mirror that was given up.
type Eviction struct {
	At       time.Time
	Resource *object.Resource
	Selected SelectionText
	User     string // "" if requests are not authenticated
	Agent    string
	Client   string
	Began    time.Time
	Bytes    int64
}

// keptEvictionsLimit is how many evictions are kept.
const keptEvictionsLimit = 20

func (e *endStats) addEnd(st *Stream, reason EndReason) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.counts == nil {
		e.counts = map[EndReason]uint64{}
	}
	e.counts[reason]++
	if reason.EvictionMessage() == "" {
		return
	}
	if len(e.evictions) == keptEvictionsLimit {
		e.evictions = slices.Delete(e.evictions, 0, 1)
	}
	e.evictions = append(e.evictions, Eviction{
		At: time.Now(), Resource: st.source.Resource().Info, Selected: st.selection(), User: st.client.name(),
		Agent: st.client.userAgent(), Client: st.out.client(), Began: st.startedAt(), Bytes: st.sentBytes.Load(),
	})
}

// EndCounts is how many watches have ended for each reason that one has ended for, and the last few
// evictions, oldest first.
func (m *Manager) EndCounts() (map[EndReason]uint64, []Eviction) {
	m.endStats.mu.Lock()
	defer m.endStats.mu.Unlock()
	return maps.Clone(m.endStats.counts), slices.Clone(m.endStats.evictions)
}
