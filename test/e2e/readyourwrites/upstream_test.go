package readyourwrites

import (
	"flag"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"spillway/test/framework/controlplane"
	"spillway/test/framework/relay"
)

// late is how late the answers to the proxy's questions are. By default they are prompt, so that
// what is known of upstream is always ahead of what has arrived.
var late relay.Answers

func init() {
	flag.Var(&late, "late", "how late upstream answers the proxy's own questions: a time, random or never")
}

// slowUpstream makes everything slow that a cache may lean on, and nothing else.
//
// The bytes of the mirror's own watch arrive some milliseconds late, each run of them by a time of
// its own and all in their order, as from an API server whose watchers lag (W-212). Complete LISTs
// take long to come, as from an API server under load: else none of them would be worth a proof.
type slowUpstream struct {
	delayed atomic.Int64 // runs of bytes of watches
}

const (
	leastDelay, mostDelay = 5 * time.Millisecond, 50 * time.Millisecond
	// dearList is how much longer a LIST takes. A client can tell that from a proof that came late,
	// and from nothing else.
	dearList = 75 * time.Millisecond
)

// kubeconfig leads a proxy to the API server by way of a relay that is slow.
func (s *slowUpstream) kubeconfig(t *testing.T, cp *controlplane.ControlPlane) string {
	t.Helper()
	return relay.New(t, cp.Config(controlplane.Admin), s.lateness).Kubeconfig(t)
}

func (s *slowUpstream) lateness(r *http.Request) relay.Lateness {
	l := late.Lateness(r)
	switch mirror, watch := relay.IsOwn(r) && !relay.IsQuestion(r), r.URL.Query().Get("watch") == "true"; {
	case mirror && watch:
		l.Runs = func() time.Duration {
			s.delayed.Add(1)
			return leastDelay + rand.N(mostDelay-leastDelay)
		}
	case !mirror && !watch && isList(r):
		l.After += dearList
	}
	return l
}

// isList reports a LIST of more than one object.
func isList(r *http.Request) bool {
	return r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/configmaps") && r.URL.Query().Get("limit") != "1"
}
