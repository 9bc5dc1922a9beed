package discovery

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"spillway/internal/fakeapiserver"
	"spillway/internal/upstream"
	"spillway/internal/upstream/upstreamtest"
)

// receivedChanges is what a follower received, by name, and how often.
type receivedChanges struct {
	mu    sync.Mutex
	facts map[string]string
	times int
}

func (h *receivedChanges) tell(name, fact string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.facts == nil {
		h.facts = map[string]string{}
	}
	h.facts[name] = fact
	h.times++
}

// await waits until cond, called with mu held, is true.
func (h *receivedChanges) await(t *testing.T, what string, cond func(facts map[string]string) bool) {
	t.Helper()
	for ctx := deadline(t); ; time.Sleep(time.Millisecond) {
		h.mu.Lock()
		done, facts := cond(h.facts), maps.Clone(h.facts)
		h.mu.Unlock()
		if done {
			return
		}
		if ctx.Err() != nil {
			t.Fatalf("waiting for %s: told %v", what, facts)
		}
	}
}

// following runs a follower until the test ends.
func following(t *testing.T, follow func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- follow(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("following ended with %v", err)
		}
	})
}

// crd is a definition of gadgets.
func crd(change string) fakeapiserver.Edit {
	return fakeapiserver.WithJSON(
		fmt.Sprintf(`{"spec":{"group":"example.com","names":{"plural":"gadgets","kind":"Gadget"%s},"versions":[{"name":"v1"}]},
		"status":{"acceptedNames":{"kind":"Gadget"},"conditions":[{"type":"NamesAccepted","status":"True"},{"type":"Established","status":"True"}]}}`, change))
}

// The digest of a definition changes exactly when the API server answers otherwise (W-116, W-234).
func TestFollowDefinitions(t *testing.T) {
	s, c := upstreamtest.NewServer(t, fakeapiserver.Options{})
	const name = "gadgets.example.com"
	s.Create(fakeapiserver.CRDs, "", name, crd(""))
	var h receivedChanges
	following(t, func(ctx context.Context) error {
		return FollowDefinitions(ctx, c, zap.NewNop(), func(gr schema.GroupResource, epoch string) {
			h.tell(gr.String(), epoch)
		})
	})
	epoch := func(differsFrom string) (got string) {
		t.Helper()
		h.await(t, "another epoch than "+differsFrom, func(facts map[string]string) (told bool) {
			got, told = facts[name]
			return told && got != differsFrom
		})
		return got
	}
	first := epoch("")
	s.Update(fakeapiserver.CRDs, "", name, fakeapiserver.WithAnnotation("a", "b")) // which is nothing to the API server
	s.Update(fakeapiserver.CRDs, "", name, crd(`,"singular":"gadget"`))
	second := epoch(first)
	h.mu.Lock()
	if h.times != 2 {
		t.Errorf("told %d times of two epochs", h.times)
	}
	h.mu.Unlock()
	s.Update(fakeapiserver.CRDs, "", name, fakeapiserver.WithFinalizers("x"))
	s.Delete(fakeapiserver.CRDs, "", name) // marked: its objects are served until they are gone
	s.Update(fakeapiserver.CRDs, "", name, fakeapiserver.WithFinalizers())
	if e := epoch(second); e != "" {
		t.Errorf("of a definition that is gone: %q", e)
	}
	s.Create(fakeapiserver.CRDs, "", name, crd(`,"singular":"gadget"`))
	if e := epoch(""); e == second {
		t.Error("a definition with another UID is reported as the same")
	}
	s.Update(fakeapiserver.CRDs, "", name, fakeapiserver.WithoutField("status"))
	h.await(t, "a definition that serves nothing", func(facts map[string]string) bool { return facts[name] == "" })
}

// A changeNotifier reports what changed while there was no watch.
func TestFollowThroughGap(t *testing.T) {
	s, c := upstreamtest.NewServer(t, fakeapiserver.Options{})
	for _, name := range []string{"as.example.com", "bs.example.com", "cs.example.com"} {
		s.Create(fakeapiserver.CRDs, "", name, crd(""))
	}
	var h receivedChanges
	following(t, func(ctx context.Context) error {
		return FollowDefinitions(ctx, c, zap.NewNop(), func(gr schema.GroupResource, epoch string) {
			h.tell(gr.Resource, epoch)
		})
	})
	var before map[string]string
	h.await(t, "all", func(facts map[string]string) bool { before = maps.Clone(facts); return len(facts) == 3 })
	s.HoldWatch(fakeapiserver.CRDs)
	s.Delete(fakeapiserver.CRDs, "", "as.example.com")
	s.Update(fakeapiserver.CRDs, "", "bs.example.com", crd(`,"singular":"b"`))
	s.ForgetHistory(fakeapiserver.CRDs)
	s.ReleaseWatch(fakeapiserver.CRDs)
	h.await(t, "the difference", func(facts map[string]string) bool {
		return facts["as"] == "" && facts["bs"] != before["bs"]
	})
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.times != 5 {
		t.Errorf("told %d times, want 5: %v", h.times, slices.Sorted(maps.Keys(h.facts)))
	}
}

// Which groups another server answers for.
func TestFollowServices(t *testing.T) {
	services := schema.GroupVersionResource{Group: "apiregistration.k8s.io", Version: "v1", Resource: "apiservices"}
	s, c := upstreamtest.NewServer(t,
		fakeapiserver.Options{Resources: []fakeapiserver.Resource{{GVR: services, Kind: "APIService"}}})
	behind := fakeapiserver.WithJSON(`{"spec":{"service":{"namespace":"n","name":"metrics"}}}`)
	s.Create(services, "", "v1.apps")
	s.Create(services, "", "v1beta1.metrics.k8s.io", behind)
	var h receivedChanges
	following(t, func(ctx context.Context) error {
		return FollowServices(ctx, c, zap.NewNop(), func(gv schema.GroupVersion, service string) {
			h.tell(gv.String(), service)
		})
	})
	await := func(gv, want string) {
		t.Helper()
		h.await(t, gv+" by "+want, func(facts map[string]string) bool { got, told := facts[gv]; return told && got == want })
	}
	await("metrics.k8s.io/v1beta1", "n/metrics")
	h.await(t, "no word of kube-apiserver's own group", func(facts map[string]string) bool { return len(facts) == 1 })
	s.Update(services, "", "v1.apps", behind)
	await("apps/v1", "n/metrics")
	s.Delete(services, "", "v1beta1.metrics.k8s.io")
	await("metrics.k8s.io/v1beta1", "")
}

// A follower that may not see definitions reports that, and does not go on trying.
func TestFollowDenied(t *testing.T) {
	s, c := upstreamtest.NewServer(t, fakeapiserver.Options{})
	s.Handle(customResourceDefinitions, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusForbidden)
		_, _ = w.Write([]byte(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403}`))
	}))
	err := FollowDefinitions(deadline(t), c, zap.NewNop(), func(schema.GroupResource, string) {
		t.Error("told of something")
	})
	if !apierrors.IsForbidden(err) || !upstream.IsDenied(err) {
		t.Error(err)
	}
}

func TestSchemaHashes(t *testing.T) {
	c := documents(t, map[string]string{"/openapi/v3": `{"paths":{
		".well-known/openid-configuration":{"serverRelativeURL":"/openapi/v3/.well-known/openid-configuration?hash=0"},
		"api":{"serverRelativeURL":"/openapi/v3/api?hash=1"},"apis/apps":{"serverRelativeURL":"/openapi/v3/apis/apps?hash=2"},
		"api/v1":{"serverRelativeURL":"/openapi/v3/api/v1?hash=3"},
		"apis/apps/v1":{"serverRelativeURL":"/openapi/v3/apis/apps/v1?hash=4"}}}`})
	got, err := ReadSchemaHashes(deadline(t), c)
	want := map[schema.GroupVersion]string{{Version: "v1"}: "3", {Group: "apps", Version: "v1"}: "4"}
	if err != nil || !maps.Equal(got, want) {
		t.Errorf("%v, %v", got, err)
	}
}

func TestStorageHashes(t *testing.T) {
	_, c := upstreamtest.NewServer(t, fakeapiserver.Options{})
	got, err := ReadStorageHashes(deadline(t), c, fakeapiserver.Deployments.GroupVersion())
	if err != nil || got["deployments"] == "" || len(got) != 1 {
		t.Errorf("%v, %v", got, err)
	}
}

// The list kind is what the definition says, and so is what makes two definitions different (W-60).
func TestListKind(t *testing.T) {
	all := cluster()
	all[customResourceDefinitions+"/gateways.gateway.networking.k8s.io"] = strings.Replace(gateways, `{"spec"`,
		`{"status":{"acceptedNames":{"listKind":"GatewayCollection"}},"spec"`, 1)
	got, err := strictly(t, documents(t, all), []string{"gateways.gateway.networking.k8s.io", "pods"})
	if err != nil {
		t.Fatal(err)
	}
	if got[0].ListKind != "GatewayCollection" || got[0].Definition == "" {
		t.Errorf("list kind %s, definition %q", got[0].ListKind, got[0].Definition)
	}
	if got[1].ListKind != "PodList" || got[1].Definition != "" {
		t.Errorf("list kind %s, definition %q", got[1].ListKind, got[1].Definition)
	}
}
