package admin

import (
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"spillway/internal/auth"
)

const (
	metricsPath = "/metrics"
	// rememberedReadersLimit bounds the readers that are remembered, and rememberedReaderTTL how long
	// after its last allowance a reader is.
	rememberedReadersLimit = 64
	rememberedReaderTTL    = time.Hour
)

// metricsReaders are the readers that upstream has lately allowed to get /metrics. They go on
// reading it while no review can be had, which is when an operator needs it. A reader is known by a
// keyed hash of what proves its identity.
//
// The status page and profiles are not read that way: they name users, and hold what may be secret.
type metricsReaders struct {
	hasher *auth.Hasher

	mu      sync.Mutex
	allowed *auth.AnswerCache[struct{}]
}

func newMetricsReaders() *metricsReaders {
	return &metricsReaders{hasher: auth.NewHasher(), allowed: auth.NewAnswerCache[struct{}](rememberedReadersLimit)}
}

// digest is equal for requests with the same credentials: it covers all headers that authentication
// reads, and the client's certificates.
func (m *metricsReaders) digest(a *auth.Authenticator, request auth.AuthnRequest) auth.Digest {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(request.Header)) {
		if a.ReadsHeader(name) {
			parts = append(parts, name)
			for _, value := range request.Header[name] {
				parts = append(parts, "="+value)
			}
		}
	}
	for _, certificate := range request.Peer {
		parts = append(parts, "#"+string(certificate.Raw))
	}
	return m.hasher.Sum(parts...)
}

// isAllowed reports that upstream allowed the reader, and has not denied it since.
func (m *metricsReaders) isAllowed(reader auth.Digest, now time.Time) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, ok := m.allowed.Recall(reader, now)
	return ok
}

// note remembers or forgets a reader by what upstream says of it.
func (m *metricsReaders) note(reader auth.Digest, j judgement, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch j.verdict {
	case auth.Denied:
		m.allowed.Forget(reader)
	case auth.Allowed:
		until := j.reviewed.Add(rememberedReaderTTL)
		if end := j.expires; !end.IsZero() {
			if end = auth.MonotonicEnd(end, j.reviewed); end.Before(until) {
				until = end
			}
		}
		m.allowed.Note(reader, auth.Answer[struct{}]{At: j.reviewed}, until, now)
	}
}

// isMetrics reports that a request reads metrics, and nothing else.
func isMetrics(r *http.Request) bool {
	return r.Method == http.MethodGet && r.URL.EscapedPath() == metricsPath
}
