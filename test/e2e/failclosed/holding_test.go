package failclosed

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"net/http"
	"testing"
	"time"

	"spillway/test/framework/authcluster"
	"spillway/test/framework/exchange"
	"spillway/test/framework/process"
	"spillway/test/framework/wire"
)

// follower watches on a connection of its own until it sees the last word.
type follower struct {
	word    string         // the last one
	arrived chan time.Time // of bytes
	answer  *exchange.Answer
	err     error
	done    chan struct{}
}

const busy = "/api/v1/namespaces/busy/configmaps?resourceVersion=0&watch=1"

// follow begins to watch, and returns when the first bytes have come. Each has a last word of its
// own, because all see the same objects.
func follow(t *testing.T, to wire.Address, p authcluster.User) *follower {
	t.Helper()
	f, ok := tryFollow(t, to, p)
	if !ok {
		t.Fatalf("cannot watch: %+v, %v", f.answer, f.err)
	}
	return f
}

// tryFollow is follow for a request that may be refused, which ok reports.
func tryFollow(t *testing.T, to wire.Address, p authcluster.User) (f *follower, ok bool) {
	t.Helper()
	conn, err := wire.Dial(t.Context(), to)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	f = &follower{word: rand.Text(), arrived: make(chan time.Time, 1<<14), done: make(chan struct{})}
	go func() {
		defer close(f.done)
		f.answer, _, f.err = conn.AskUntil(http.MethodGet, request(to, p, busy), func(body []byte) bool {
			f.arrived <- time.Now()
			return bytes.Contains(body, []byte(f.word))
		})
	}()
	select {
	case <-f.arrived:
		return f, true
	case <-f.done:
		return f, len(f.arrived) > 0
	}
}

// awaitLast waits for the last word on the same stream.
func (f *follower) awaitLast(t *testing.T) {
	t.Helper()
	select {
	case <-f.done:
		if f.err != nil || f.answer.Cut != nil || !bytes.Contains(f.answer.Body, []byte(f.word)) {
			t.Errorf("the stream has ended before the last word: %v", f.err)
		}
	case <-time.After(process.Patience):
		t.Error("the last word does not come")
	}
}

// holding lets reviews fail under a watch: it delivers nothing any more 30 s after the last review
// that succeeded, and goes on from there once they succeed again, on the same stream.
func (w *world) holding(t *testing.T) {
	t.Parallel()
	for i, group := range []string{tokenReviews, accessReviews} {
		t.Run(group, func(t *testing.T) {
			t.Parallel()
			p := w.ServiceAccount(t, "red", fmt.Sprintf("watches-%d", i), 0)
			w.Grant(t, p, authcluster.Everywhere(reads.Rules...))
			w.Settle(t)
			r := newRelay(t, w.Cluster)
			proxy := process.StartProxy(t, w.binary, r.flags(t, w.Cluster, "--resources=configmaps")...)
			name := fmt.Sprintf("object-%d", i)
			w.object(t, "busy", name, nil)
			awaitMemory(t, proxy, p)
			f := follow(t, authcluster.Through(proxy, p), p)
			r.fault.Store(&faults(group)[0])
			failing := time.Now()
			var latest time.Duration
			writes := 0
			for ; time.Since(failing) < 35*time.Second; writes++ {
				w.object(t, "busy", name, nil)
				time.Sleep(200 * time.Millisecond)
				for len(f.arrived) > 0 {
					latest = (<-f.arrived).Sub(failing)
				}
			}
			t.Logf("%d writes while reviews fail; the last event came after %.1f s", writes, latest.Seconds())
			if latest > 30*time.Second || latest <= 0 {
				t.Errorf("the last event came after %v", latest)
			}
			w.object(t, "busy", name, map[string]string{"word": f.word})
			r.fault.Store(nil)
			f.awaitLast(t)
		})
	}
}
