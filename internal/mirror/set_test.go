package mirror

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"spillway/internal/fakeapiserver"
	"spillway/internal/fanout"
	"spillway/internal/health"
	"spillway/internal/mirror/states"
	"spillway/internal/object"
	"spillway/internal/upstream"
)

// defaults are the options that no flag sets.
func defaults() SetOptions {
	return SetOptions{
		MaxOnDemand: 256, IdleTimeout: time.Hour, CompareInterval: 10 * time.Minute,
		HistoryBytes: 64 << 20, HistoryMinAge: 75 * time.Second, MaxBackfillWatches: 64, EncodingCacheBytes: 256 << 20,
		AsksAboutAll: true,
	}
}

// name sets what is mirrored; "*" is everything, on demand.
func (o *SetOptions) name(resources []string) {
	named := slices.DeleteFunc(slices.Clone(resources), func(name string) bool { return name == "*" })
	o.Resources, o.OnDemand = named, len(named) < len(resources)
}

// mirroring starts mirrors of an upstream, and ends them with the test.
func mirroring(t *testing.T, up *fakeapiserver.Server, change func(*SetOptions), resources ...string) *Set {
	t.Helper()
	m, err := tryMirroring(t, up, change, resources...)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// mirroringTo is mirroring with a log.
func mirroringTo(t *testing.T, up *fakeapiserver.Server, log *zap.Logger, change func(*SetOptions),
	resources ...string) *Set {
	t.Helper()
	m, err := startMirroring(t, up, log, change, resources...)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func tryMirroring(t *testing.T, up *fakeapiserver.Server, change func(*SetOptions), resources ...string) (*Set, error) {
	t.Helper()
	return startMirroring(t, up, zap.NewNop(), change, resources...)
}

func startMirroring(t *testing.T, up *fakeapiserver.Server, log *zap.Logger, change func(*SetOptions),
	resources ...string) (*Set, error) {
	t.Helper()
	return startMirroringAt(t, up, up.URL, log, change, resources...)
}

// mirroringAt is mirroringTo through what is at another address.
func mirroringAt(t *testing.T, up *fakeapiserver.Server, address string, log *zap.Logger, resources ...string) *Set {
	t.Helper()
	m, err := startMirroringAt(t, up, address, log, nil, resources...)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func startMirroringAt(t *testing.T, up *fakeapiserver.Server, address string, log *zap.Logger, change func(*SetOptions),
	resources ...string) (*Set, error) {
	t.Helper()
	client := clientAt(t, up, address)
	o := defaults()
	o.name(resources)
	if change != nil {
		change(&o)
	}
	ctx, cancel := context.WithCancel(context.Background())
	starting, cancelStarting := context.WithTimeout(ctx, patience)
	defer cancelStarting()
	m := NewSet(ctx, client, o, log)
	m.firstRetryPause = 10 * time.Millisecond
	m.historyPace = states.Pace{}
	m.endMarkWait = 3 * time.Second // a busy machine under the race detector takes its time
	t.Cleanup(func() {
		cancel()
		m.Wait()
		client.Close()
	})
	return m, m.Begin(starting)
}

func newUpstream(t *testing.T) *fakeapiserver.Server {
	t.Helper()
	up := fakeapiserver.New(fakeapiserver.Options{ProofDelay: 10 * time.Millisecond})
	t.Cleanup(up.Close)
	return up
}

func (s *Set) names() string {
	var names []string
	for _, m := range s.all() {
		names = append(names, m.resource.Info.String())
	}
	return strings.Join(names, " ")
}

// awaitReady waits until a resource is answered from memory.
func (s *Set) awaitReady(t *testing.T, gvr schema.GroupVersionResource) {
	t.Helper()
	eventually(t, gvr.Resource+" to be mirrored", func() bool {
		found := s.Find(gvr)
		return found != nil && found.Resource().IsReady()
	})
}

func TestNamedMirrors(t *testing.T) {
	up := newUpstream(t)
	up.Create(fakeapiserver.ConfigMaps, "n", "a")
	m := mirroring(t, up, nil, "configmap", "widgets.example.com", "configmaps")
	t.Run("names are kubectl's, each once", func(t *testing.T) {
		if got := m.names(); got != "configmaps widgets.example.com" {
			t.Errorf("mirrors %q", got)
		}
	})
	m.awaitReady(t, fakeapiserver.ConfigMaps)
	m.awaitReady(t, fakeapiserver.Widgets)
	for _, gvr := range []schema.GroupVersionResource{fakeapiserver.Pods, fakeapiserver.Secrets,
		{Group: "apps", Version: "v1", Resource: "nothing"}} {
		if m.Find(gvr) != nil {
			t.Errorf("%s is mirrored without a name", gvr)
		}
	}
	if detail, err := m.Ready(); err != nil || detail != "2 resources, 1 objects" {
		t.Errorf("ready: %q %v", detail, err)
	}
}

// With Strict, what cannot be mirrored fails the start with one line.
func TestStrictResourcesRefuseToStart(t *testing.T) {
	up := newUpstream(t)
	for name, want := range map[string]string{
		"configmap,nothings": `the API server serves no resource "nothings"`,
		"events":             "events is never mirrored: the API server has no watch cache for events",
		"componentstatuses":  "cannot be listed and watched",
		"podz":               "did you mean pods",
	} {
		_, err := tryMirroring(t, up, func(o *SetOptions) { o.Strict = true }, strings.Split(name, ",")...)
		if !errors.As(err, new(*ResourcesError)) || !strings.Contains(err.Error(), want) ||
			strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v; want %q", name, err, want)
		}
	}
}

// Without Strict, a name without a group that upstream does not serve fails the start. Resources of
// other groups may appear later.
func TestATypingMistakeRefusesToStart(t *testing.T) {
	up := newUpstream(t)
	_, err := tryMirroring(t, up, nil, "configmaps", "podz", "gizmos.example.com", "events")
	if !errors.As(err, new(*ResourcesError)) || !strings.Contains(err.Error(), `no resource "podz"; did you mean pods`) ||
		strings.Contains(err.Error(), "gizmos") {
		t.Errorf("got %v", err)
	}
}

// What is never mirrored says so once, has no next attempt, and is not looked for again.
func TestWhatIsNeverMirroredIsNotRetried(t *testing.T) {
	up := newUpstream(t)
	core, logs := observer.New(zap.InfoLevel)
	m := mirroringTo(t, up, zap.New(core), nil, "configmaps", "events")
	m.awaitReady(t, fakeapiserver.ConfigMaps)
	lines := logs.FilterMessage("the resource is never mirrored, its requests pass through").All()
	if len(lines) != 1 || lines[0].ContextMap()["resource"] != "events" || lines[0].ContextMap()["retryAfter"] != nil {
		t.Errorf("it says %v", lines)
	}
	m.mu.Lock()
	names, _ := m.missingNamesLocked()
	m.mu.Unlock()
	if len(names) != 0 {
		t.Errorf("looks for %q", names)
	}
	verbose := strings.Join(m.Describe(), "\n")
	if !strings.Contains(verbose, "[!]mirror events refused for ") || strings.Contains(verbose, "next attempt") {
		t.Errorf("/readyz?verbose has\n%s", verbose)
	}
}

func TestMirrorsOnDemand(t *testing.T) {
	up := newUpstream(t)
	m := mirroring(t, up, nil, "*", "configmaps")
	if got := m.names(); got != "configmaps" {
		t.Errorf("mirrors %q before any request", got)
	}
	m.awaitReady(t, fakeapiserver.Pods)
	m.awaitReady(t, fakeapiserver.Deployments)
	for _, gvr := range []schema.GroupVersionResource{fakeapiserver.Events, fakeapiserver.Secrets,
		fakeapiserver.ComponentStatuses} {
		if m.Find(gvr) != nil {
			t.Errorf("%s is mirrored", gvr)
		}
	}
	if got := m.names(); got != "configmaps deployments.apps pods" {
		t.Errorf("mirrors %q", got)
	}
	detail, err := m.PassThrough()
	for _, reason := range []string{"events (the API server has no watch cache",
		"secrets (secrets are mirrored only if they are named)", "componentstatuses", "(it cannot be listed and watched"} {
		if err != nil || !strings.Contains(detail, reason) {
			t.Errorf("passes through: %q, %v; want %q", detail, err, reason)
		}
	}
	named := mirroring(t, up, nil, "*", "secrets")
	named.awaitReady(t, fakeapiserver.Secrets)
}

// A line about many resources that are never mirrored is short: it has each reason once.
func TestTheLineOfRefusedResourcesIsBounded(t *testing.T) {
	names := map[string][]string{"no watch": {"d", "c", "b", "a", "a"}, "no cache": {"events", "events"}}
	const want = "never mirrored: events (no cache); a, b, c and 1 more (no watch)"
	if got := describeRefusals(names); got != want {
		t.Errorf("%q, want %q", got, want)
	}
	for i := range 100 {
		names[fmt.Sprint("reason ", i)] = []string{"x"}
	}
	if got := describeRefusals(names); len(got) > 200 || !strings.HasSuffix(got, "; and for 97 more reasons") {
		t.Errorf("%q", got)
	}
	if got := describeRefusals(nil); got != "" {
		t.Errorf("of none: %q", got)
	}
}

// The bound is on what clients make the proxy mirror; what was named is not theirs.
func TestMostMirrorsOnDemand(t *testing.T) {
	up := newUpstream(t)
	m := mirroring(t, up, func(o *SetOptions) { o.MaxOnDemand = 1 }, "*", "configmaps", "services", "nodes")
	m.awaitReady(t, fakeapiserver.Pods)
	if m.Find(fakeapiserver.Deployments) != nil {
		t.Error("two resources are mirrored on demand")
	}
	if m.Find(fakeapiserver.Pods) == nil || m.Find(fakeapiserver.Nodes) == nil {
		t.Error("what is mirrored is not found")
	}
}

// A request for an unknown resource does not wait for upstream to say what it is, and does not make
// the proxy look it up again and again.
func TestFindDoesNotBlock(t *testing.T) {
	up := newUpstream(t)
	m := mirroring(t, up, nil, "*")
	up.Hang()
	made := schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "gadgets"}
	for range 100 {
		if m.Find(made) != nil {
			t.Fatal("upstream serves no gadgets")
		}
	}
	m.mu.Lock()
	asked := len(m.mu.lookUps)
	m.mu.Unlock()
	if asked != 1 {
		t.Errorf("asked about %d resources", asked)
	}
	if err := up.Up(); err != nil {
		t.Fatal(err)
	}
}

// Names that clients make up do not fill memory.
func TestMadeUpNames(t *testing.T) {
	up := newUpstream(t)
	m := mirroring(t, up, func(o *SetOptions) { o.MaxOnDemand = 2 }, "*")
	for i := range 50 {
		m.Find(schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: fmt.Sprint("gadgets", i)})
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if n := len(m.mu.lookUps); n > 4*2+1 {
		t.Errorf("%d names are remembered", n)
	}
}

// A resource that appears later is found at the next request for it.
func TestResourceThatAppears(t *testing.T) {
	up := newUpstream(t)
	m := mirroring(t, up, nil, "*")
	m.mu.Lock()
	m.updateLocked(fakeapiserver.Widgets, func(e *entry) { e.offered = nil }) // as if its CRD was not there at the start
	m.mu.Unlock()
	if m.Find(fakeapiserver.Widgets) != nil {
		t.Error("found before it was looked up")
	}
	m.awaitReady(t, fakeapiserver.Widgets)
}

// refusing answers every request for a resource with a code.
func refusing(code int) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","reason":%q,"code":%d}`,
			map[int]string{404: "NotFound", 403: "Forbidden"}[code], code)
	})
}

// A resource that upstream serves no more, or not to the proxy, passes through, and its watches end
// with 410; when it is back it is mirrored again.
func TestLostMirror(t *testing.T) {
	for _, code := range []int{http.StatusNotFound, http.StatusForbidden} {
		for _, resources := range [][]string{{"widgets.example.com"}, {"*"}} {
			t.Run(fmt.Sprint(code, resources), func(t *testing.T) {
				t.Parallel()
				up := newUpstream(t)
				up.Create(fakeapiserver.Widgets, "n", "old")
				m := mirroring(t, up, nil, resources...)
				m.awaitReady(t, fakeapiserver.Widgets)
				before := m.Find(fakeapiserver.Widgets)
				cursor := before.Hub.ViewFor("").CursorAt(before.Resource().Snapshot().Next, before.Resource().CompleteRV(),
					object.Selector{},
					object.Encoding{})
				defer cursor.Close()

				const path = "/apis/example.com/v1/widgets"
				up.Handle(path, refusing(code))
				up.CutWatches(fakeapiserver.Widgets)
				eventually(t, "the mirror to be given up",
					func() bool { return m.Find(fakeapiserver.Widgets) == nil && before.Resource().IsClosed() })
				if err := expired(cursor); err == nil {
					t.Error("a stream goes on without a mirror")
				}
				if detail, err := m.Ready(); err != nil && !errors.As(err, new(health.Warning)) {
					t.Errorf("not ready: %q %v", detail, err)
				}
				up.Handle(path, nil)
				up.Create(fakeapiserver.Widgets, "n", "new")
				m.mu.Lock()
				clear(m.mu.lookUps) // as if some time had passed
				m.mu.Unlock()
				m.awaitReady(t, fakeapiserver.Widgets)
				after := m.Find(fakeapiserver.Widgets)
				if after == before || after.Resource().Snapshot().Len() != 2 {
					t.Errorf("mirrored again: %v, %d objects", after != before, after.Resource().Snapshot().Len())
				}
			})
		}
	}
}

// expired reads on until there is an error or nothing more.
func expired(c *fanout.Cursor) error {
	for {
		run, err := c.Next()
		if err != nil || len(run) == 0 {
			return err
		}
	}
}

// A resource that the proxy may never list is not held up by the attempt, and does not make the
// proxy unready.
func TestForbiddenMirror(t *testing.T) {
	up := newUpstream(t)
	up.Handle("/apis/example.com/v1/widgets", refusing(http.StatusForbidden))
	m := mirroring(t, up, nil, "widgets.example.com", "configmaps")
	m.awaitReady(t, fakeapiserver.ConfigMaps)
	eventually(t, "the mirror to be given up", func() bool { return m.Find(fakeapiserver.Widgets) == nil })
	if detail, err := m.Ready(); err != nil {
		t.Errorf("not ready: %q %v", detail, err)
	}
}

// A proxy that may list none of its resources is ready, because the API server answers its clients,
// and says that it mirrors nothing.
func TestReadyWarnsIfNothingIsMirrored(t *testing.T) {
	up := newUpstream(t)
	up.Handle("/apis/example.com/v1/widgets", refusing(http.StatusForbidden))
	m := mirroring(t, up, nil, "widgets.example.com")
	eventually(t, "the mirror to be given up", func() bool { return m.Find(fakeapiserver.Widgets) == nil })
	const want = health.Warning("no named resource is mirrored, and all requests pass through: the reasons are below")
	if _, err := m.Ready(); !errors.Is(err, want) {
		t.Errorf("%v", err)
	}
}

// While there is no state yet and upstream cannot be reached, requests pass through to get
// upstream's own failure; a state that there is is served on.
func TestUpstreamDown(t *testing.T) {
	up := newUpstream(t)
	m := mirroring(t, up, nil, "*")
	m.awaitReady(t, fakeapiserver.ConfigMaps)
	up.Down()
	eventually(t, "a first failure", func() bool {
		m.Find(fakeapiserver.Pods)
		running := (*m.running.Load())[fakeapiserver.Pods]
		return running != nil && running.reflector.Status().Err != nil
	})
	if m.Find(fakeapiserver.Pods) != nil {
		t.Error("a mirror without a state is offered although upstream is down")
	}
	if s := m.Find(fakeapiserver.ConfigMaps); s == nil || !s.Resource().IsReady() {
		t.Error("what is known is not served while upstream is down")
	}
	if err := up.Up(); err != nil {
		t.Fatal(err)
	}
	m.awaitReady(t, fakeapiserver.Pods)
}

// Not ready before every named resource has its first state.
func TestReadyWhenListed(t *testing.T) {
	up := newUpstream(t)
	up.StallReads(fakeapiserver.ConsistentReads)
	m := mirroring(t, up, nil, "configmaps")
	if _, err := m.Ready(); err == nil || err.Error() != "configmaps has not been listed yet" {
		t.Errorf("ready: %v", err)
	}
	up.StallReads(fakeapiserver.NoReads)
	m.awaitReady(t, fakeapiserver.ConfigMaps)
	if _, err := m.Ready(); err != nil {
		t.Error(err)
	}
}

// An upstream that stops answering while the proxy starts does not keep it starting forever.
func TestStartIsBounded(t *testing.T) {
	up := newUpstream(t)
	up.Hang()
	client := clientOf(t, up)
	defer client.Close()
	starting, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	o := defaults()
	for _, resources := range [][]string{{"configmaps"}, {"*"}} {
		o.name(resources)
		if err := NewSet(t.Context(), client, o, zap.NewNop()).Begin(starting); !upstream.IsUnavailable(err) {
			t.Errorf("%v: %v", resources, err)
		}
	}
}
