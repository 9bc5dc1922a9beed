package freshness

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"spillway/internal/cache"
	"spillway/internal/object"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var pods = object.NewResource(schema.GroupVersionResource{Version: "v1", Resource: "pods"}, "Pod", true, true)

// unlimited keeps every event.
var unlimited = cache.HistoryLimits{HistoryBytes: 1 << 40, HistoryMinAge: time.Hour}

func newPods(limits cache.HistoryLimits) *cache.Resource { return cache.New(pods, limits, time.Now) }

// pod is a version of n/name; by default its UID is its name.
func pod(t testing.TB, name string, rv uint64, uid ...string) *object.Object {
	t.Helper()
	o, err := pods.Parse(fmt.Appendf(nil, `{"metadata":{"name":%q,"namespace":"n","uid":%q,"resourceVersion":"%d"}}`,
		name, append(uid, name)[0], rv))
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// objects are written as "name=uid@rv".
func objects(t testing.TB, words ...string) (all []*object.Object) {
	t.Helper()
	for _, w := range words {
		var rv uint64
		name, rest, _ := strings.Cut(w, "=")
		uid, version, _ := strings.Cut(rest, "@")
		if _, err := fmt.Sscan(version, &rv); err != nil {
			t.Fatal(err)
		}
		all = append(all, pod(t, name, rv, uid))
	}
	return all
}

// checkState compares the current state, written as "name=uid@rv name=uid@rv".
func checkState(t *testing.T, r *cache.Resource, rv uint64, want string) {
	t.Helper()
	s := r.Snapshot()
	var got []string
	s.Scan(object.Selector{}, "", func(o *object.Object) bool {
		got = append(got, fmt.Sprintf("%s=%s@%d", strings.TrimPrefix(o.Key, "n/"), o.UID, o.RV))
		return true
	})
	if strings.Join(got, " ") != want || s.RV != rv || r.CompleteRV() != rv {
		t.Errorf("state at %d: %s\nwant at %d: %s", s.RV, got, rv, want)
	}
}

// checkExpired checks that the history goes back to oldest, which is above rv.
func checkExpired(t *testing.T, l *cache.Log, rv, oldest uint64) {
	t.Helper()
	var expired *cache.ExpiredError
	if pos, err := l.Find(rv); !errors.As(err, &expired) || expired.RequestedRV != rv || expired.OldestRV != oldest {
		t.Errorf("Find(%d) = %d, %v, want expired with %d", rv, pos, err, oldest)
	}
}

// logFrom is the log from a position on: "added@22 progress@27".
func logFrom(t *testing.T, l *cache.Log, pos uint64) string {
	t.Helper()
	var all []string
	for ; pos < l.Head(); pos++ {
		e, ok := l.EntryAt(pos)
		if !ok {
			t.Fatalf("position %d is gone", pos)
		}
		kind := "progress"
		if typ, _, ok := (object.Selector{}).EventFor(&e.Event); ok {
			kind = strings.ToLower(typ.String())
		}
		all = append(all, fmt.Sprintf("%s@%d", kind, e.RV))
	}
	return strings.Join(all, " ")
}
