package limits

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	clocktesting "k8s.io/utils/clock/testing"

	"spillway/internal/fakeapiserver"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	ranges = schema.GroupVersionResource{Version: "v1", Resource: "limitranges"}
	quotas = schema.GroupVersionResource{Version: "v1", Resource: "resourcequotas"}
)

func newServer(t *testing.T) *fakeapiserver.Server {
	t.Helper()
	s := fakeapiserver.New(fakeapiserver.Options{Resources: []fakeapiserver.Resource{
		{GVR: ranges, Kind: "LimitRange", Namespaced: true}, {GVR: quotas, Kind: "ResourceQuota", Namespaced: true},
	}})
	t.Cleanup(s.Close)
	return s
}

// follow runs what follows s until the test ends.
func follow(t *testing.T, s *fakeapiserver.Server) *Follower {
	t.Helper()
	a, err := New(s.Config(), clientOf(t, s), zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	run(t, a)
	return a
}

func run(t *testing.T, a *Follower) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		a.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
}

func eventually(t *testing.T, what string, met func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !met(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("no %s within a minute", what)
		}
	}
}

// What a namespace allows is known, without what may be large in it, and followed.
func TestFollowsNamespaces(t *testing.T) {
	s := newServer(t)
	s.Create(ranges, "team", "small", func(m map[string]any) {
		m["spec"] = map[string]any{"limits": []any{map[string]any{"type": "Container",
			"max": map[string]any{"memory": "100Mi"}}}}
		m["metadata"] = map[string]any{"annotations": map[string]any{"a": strings.Repeat("x", 10_000)}}
	})
	a := follow(t, s)
	if err := a.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	got, err := a.Of("team")
	if err != nil || len(got.Ranges) != 1 || got.Ranges[0].Spec.Limits[0].Max.Memory().String() != "100Mi" ||
		len(got.Ranges[0].Annotations) > 0 || len(got.Quotas) > 0 {
		t.Errorf("%v, %v", got, err)
	}
	if a.Len() != 1 {
		t.Errorf("it holds %d objects", a.Len())
	}
	if got, err := a.Of("other"); err != nil || len(got.Ranges) != 0 {
		t.Errorf("of another namespace: %v, %v", got, err)
	}
	s.Create(quotas, "team", "all", func(m map[string]any) {
		m["spec"] = map[string]any{"hard": map[string]any{"pods": "3"}}
	})
	s.Delete(ranges, "team", "small")
	eventually(t, "change", func() bool {
		got, err := a.Of("team")
		return err == nil && len(got.Ranges) == 0 && len(got.Quotas) == 1 && got.Quotas[0].Spec.Hard.Pods().Value() == 3
	})
}

// While reading is not allowed, what a namespace allows is not known; it is once it is.
func TestUnknownWhileForbidden(t *testing.T) {
	s := newServer(t)
	s.FailLists(1<<30, http.StatusForbidden)
	s.FailWatches(1<<30, http.StatusForbidden)
	a := follow(t, s)
	eventually(t, "error", func() bool {
		_, err := a.Of("team")
		return err != nil && strings.Contains(err.Error(), "limitranges cannot be read")
	})
	s.FailLists(0, http.StatusForbidden)
	s.FailWatches(0, http.StatusForbidden)
	eventually(t, "right", func() bool {
		_, err := a.Of("team")
		return err == nil
	})
}

// What is known counts for a moment after the API server has failed, and no longer.
func TestUnknownWhenUpstreamIsAwayForLong(t *testing.T) {
	s := newServer(t)
	clock := clocktesting.NewFakePassiveClock(time.Now())
	a, err := New(s.Config(), clientOf(t, s), zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	k := a.ranges
	k.clock = clock
	run(t, a)
	if err := a.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	away := errors.New("away")
	k.noteAttempt(away)
	clock.SetTime(clock.Now().Add(staleTimeout))
	k.noteAttempt(away)
	if err := k.check(); err != nil {
		t.Errorf("within the grace: %v", err)
	}
	clock.SetTime(clock.Now().Add(time.Second))
	if _, err := a.Of("team"); !errors.Is(err, away) {
		t.Errorf("after it: %v", err)
	}
	k.noteAttempt(nil)
	if _, err := a.Of("team"); err != nil {
		t.Errorf("when it is back: %v", err)
	}
}

// clientOf has the credentials of s's config.
func clientOf(t *testing.T, s *fakeapiserver.Server) *http.Client {
	t.Helper()
	client, err := rest.HTTPClientFor(s.Config())
	if err != nil {
		t.Fatal(err)
	}
	return client
}
