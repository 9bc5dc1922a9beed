package mirror

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"spillway/internal/fakeapiserver"
	"spillway/internal/fanout"
	"spillway/internal/object"
	"spillway/internal/source"
)

const widgetDefinition = "widgets.example.com"

var (
	apiServices = schema.GroupVersionResource{Group: "apiregistration.k8s.io", Version: "v1", Resource: "apiservices"}
	jobs        = schema.GroupVersionResource{Group: "batch", Version: "v1", Resource: "jobs"}
)

// defined makes the definition of widgets, whose selectable fields are given.
func defined(fields ...string) fakeapiserver.Edit {
	var paths []string
	for _, f := range fields {
		paths = append(paths, fmt.Sprintf(`{"jsonPath":".%s"}`, f))
	}
	return fakeapiserver.WithJSON(fmt.Sprintf(`{"spec":{"group":"example.com","names":{"plural":"widgets","kind":"Widget"},
		"versions":[{"name":"v1","selectableFields":[%s]}]},
		"status":{"acceptedNames":{"kind":"Widget","listKind":"WidgetCollection"},"conditions":[{"type":"Established","status":"True"}]}}`,
		strings.Join(paths, ",")))
}

// watching is a cursor at the present of a source, until the test ends.
func watching(t *testing.T, s *source.Source) *fanout.Cursor {
	t.Helper()
	now := s.Resource().Snapshot()
	c := s.Hub.ViewFor("").CursorAt(now.Next, now.RV, object.Selector{}, object.Encoding{})
	t.Cleanup(c.Close)
	return c
}

// awaitDefinition waits until the mirrors know a definition, or that it is gone.
func (s *Set) awaitDefinition(t *testing.T, served bool) {
	t.Helper()
	eventually(t, "word of a definition", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		d := s.mu.definitions[fakeapiserver.Widgets.GroupResource()]
		return d.known && (d.epoch != "") == served
	})
}

// A definition that changes ends its mirror and the watches of it. Until upstream is done, requests
// pass through; then the resource is mirrored again as it is defined now, a named one without a
// request (W-116, W-152).
func TestDefinitionChanges(t *testing.T) {
	for _, resources := range []string{widgetDefinition, "*"} {
		t.Run(resources, func(t *testing.T) {
			t.Parallel()
			up := newUpstream(t)
			up.Create(fakeapiserver.CRDs, "", widgetDefinition, defined("spec.color"))
			up.Create(fakeapiserver.Widgets, "n", "a")
			m := mirroring(t, up, nil, resources)
			m.awaitReady(t, fakeapiserver.Widgets)
			m.awaitDefinition(t, true)
			before := m.Find(fakeapiserver.Widgets)
			if info := before.Resource().Info; !info.Selectable("spec.color") || info.Selectable("spec.size") ||
				info.ListKind != "WidgetCollection" {
				t.Errorf("mirrored as %+v", info)
			}
			cursor := watching(t, before)
			up.Update(fakeapiserver.CRDs, "", widgetDefinition, fakeapiserver.WithAnnotation("nothing", "to us"))
			up.Update(fakeapiserver.CRDs, "", widgetDefinition, defined("spec.size"))
			up.Reshape(fakeapiserver.Widgets, fakeapiserver.WithField("spec.shape", "round"))
			eventually(t, "the mirror to end", func() bool { return before.Resource().IsClosed() })
			if err := expired(cursor); err == nil {
				t.Error("a stream goes on")
			}
			if resources == "*" && m.Find(fakeapiserver.Widgets) != nil {
				t.Error("answered from memory before upstream is done")
			}
			eventually(t, "another mirror", func() bool {
				if resources == "*" {
					m.Find(fakeapiserver.Widgets)
				}
				running := (*m.running.Load())[fakeapiserver.Widgets]
				return running != nil && running.resource.IsReady()
			})
			after := m.Find(fakeapiserver.Widgets)
			eventually(t, "the new representation", func() bool {
				if after = m.Find(fakeapiserver.Widgets); after == nil {
					return false
				}
				o, ok := after.Resource().Snapshot().Get("n/a")
				return ok && strings.Contains(string(o.JSON()), "round")
			})
			if info := after.Resource().Info; info.Selectable("spec.color") || !info.Selectable("spec.size") {
				t.Errorf("mirrored as %+v", info)
			}
		})
	}
}

// Upstream may send a definition's end before it sends those of its objects: watches receive all of
// them (W-116).
func TestDefinitionGoes(t *testing.T) {
	up := newUpstream(t)
	up.Create(fakeapiserver.CRDs, "", widgetDefinition, defined())
	up.Create(fakeapiserver.Widgets, "n", "a")
	m := mirroring(t, up, nil, widgetDefinition)
	m.awaitReady(t, fakeapiserver.Widgets)
	m.awaitDefinition(t, true)
	source := m.Find(fakeapiserver.Widgets)
	cursor := watching(t, source)
	up.HoldWatch(fakeapiserver.Widgets)
	up.Delete(fakeapiserver.Widgets, "n", "a")
	up.Delete(fakeapiserver.CRDs, "", widgetDefinition)
	m.awaitDefinition(t, false)
	if m.Find(fakeapiserver.Widgets) != nil {
		t.Error("answered from memory without a definition")
	}
	up.ReleaseWatch(fakeapiserver.Widgets)
	told := ""
	for {
		more := cursor.Wait()
		run, err := cursor.Next()
		told += string(run)
		if err != nil {
			break
		}
		if len(run) == 0 {
			<-more
		}
	}
	if !source.Resource().IsClosed() || !strings.Contains(told, "DELETED") {
		t.Errorf("told of %q", told)
	}
	up.Create(fakeapiserver.CRDs, "", widgetDefinition, defined())
	eventually(t, "the resource to be mirrored again, unasked",
		func() bool { return (*m.running.Load())[fakeapiserver.Widgets] != nil })
}

// What was found out about a definition that is not the one upstream told of last is not used.
func TestDefinitionIsOutdated(t *testing.T) {
	up := newUpstream(t)
	up.Create(fakeapiserver.CRDs, "", widgetDefinition, defined("spec.color"))
	m := mirroring(t, up, nil, "*")
	m.awaitDefinition(t, true)
	m.mu.Lock()
	info := m.mu.entries[fakeapiserver.Widgets].offered
	m.mu.definitions[fakeapiserver.Widgets.GroupResource()] = definition{epoch: "a newer one", known: true}
	m.mu.Unlock()
	if m.start(info) != nil {
		t.Error("mirrored by an old definition")
	}
}

// A group that another server takes over passes through, and is mirrored again afterwards (D2).
func TestGroupIsTakenOver(t *testing.T) {
	up := fakeapiserver.New(fakeapiserver.Options{Resources: []fakeapiserver.Resource{
		{GVR: apiServices, Kind: "APIService"}, {GVR: jobs, Kind: "Job", Namespaced: true},
	}})
	t.Cleanup(up.Close)
	local, taken := fakeapiserver.WithoutField("spec.service"),
		fakeapiserver.WithField("spec.service", map[string]any{"namespace": "n", "name": "other"})
	up.Create(apiServices, "", "v1.batch", fakeapiserver.WithJSON(`{"spec":{"group":"batch","version":"v1"}}`))
	up.Create(apiServices, "", "v1.apps", fakeapiserver.WithJSON(`{"spec":{"group":"apps","version":"v1"}}`), taken)
	m := mirroring(t, up, nil, "*", "jobs.batch")
	m.awaitReady(t, jobs)
	if m.Find(fakeapiserver.Deployments) != nil {
		t.Error("an aggregated API is mirrored")
	}
	source := m.Find(jobs)
	cursor := watching(t, source)
	up.Update(apiServices, "", "v1.batch", taken)
	eventually(t, "the mirror to end", func() bool { return source.Resource().IsClosed() && m.Find(jobs) == nil })
	if err := expired(cursor); err == nil {
		t.Error("a stream goes on")
	}
	up.Update(apiServices, "", "v1.batch", local)
	eventually(t, "the resource to be mirrored again, unasked", func() bool { return (*m.running.Load())[jobs] != nil })
	up.Update(apiServices, "", "v1.apps", local)
	m.awaitReady(t, fakeapiserver.Deployments)
}

// What upstream said of a resource before it was heard that another server answers, or another
// again, is not so any more.
func TestGroupIsTakenOverMeanwhile(t *testing.T) {
	for name, c := range map[string]struct {
		said, heard string // services
	}{
		"it was another's": {`"service":{"namespace":"n","name":"other"},`, ""},
		"it is another's":  {"", "n/other"},
	} {
		t.Run(name, func(t *testing.T) {
			up := newUpstream(t)
			m := mirroring(t, up, nil, "*", "configmaps")
			asked, answer := make(chan struct{}), make(chan struct{})
			up.Handle("/apis/apiregistration.k8s.io/v1/apiservices/v1.apps",
				http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					close(asked)
					<-answer
					w.Header().Set("Content-Type", "application/json")
					fmt.Fprintf(w, `{"kind":"APIService","apiVersion":"apiregistration.k8s.io/v1","metadata":{"name":"v1.apps"},`+
						`"spec":{%s"group":"apps","version":"v1"}}`, c.said)
				}))
			found := make(chan error, 1)
			go func() {
				_, err := m.lookUp(fakeapiserver.Deployments)
				found <- err
			}()
			<-asked
			m.applyDelegation(fakeapiserver.Deployments.GroupVersion(), c.heard)
			close(answer)
			if err := <-found; !errors.Is(err, errDelegated) {
				t.Errorf("it was found: %v", err)
			}
			m.mu.Lock()
			defer m.mu.Unlock()
			known := m.mu.entries[fakeapiserver.Deployments]
			if known.refused != "" || c.heard != "" && known.offered != nil {
				t.Error("what was said is remembered")
			}
		})
	}
}

// A proxy with the rights of a client, such as a sidecar, may not see definitions: that is no
// fault. To any other proxy it is a warning.
func TestAClientIsNotWarnedOfHiddenDefinitions(t *testing.T) {
	for isClient, want := range map[bool]zapcore.Level{true: zap.InfoLevel, false: zap.WarnLevel} {
		up := newUpstream(t)
		up.Handle("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", refusing(http.StatusForbidden))
		core, logs := observer.New(zap.InfoLevel)
		mirroringTo(t, up, zap.New(core), func(o *SetOptions) { o.IsClient = isClient }, widgetDefinition)
		const text = "cannot watch customresourcedefinitions"
		eventually(t, "a word on it", func() bool { return logs.FilterMessageSnippet(text).Len() == 1 })
		if level := logs.FilterMessageSnippet(text).All()[0].Level; level != want {
			t.Errorf("a client %v: its level is %s, want %s", isClient, level, want)
		}
	}
}

// A proxy that may not see definitions reads schemas instead, and logs that once.
func TestDefinitionsAreHidden(t *testing.T) {
	up := newUpstream(t)
	const crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
	up.Handle(crds, refusing(http.StatusForbidden))
	hash := func(h string) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprintf(w, `{"paths":{"apis/example.com/v1":{"serverRelativeURL":"/openapi/v3/apis/example.com/v1?hash=%s"}}}`,
				h)
		})
	}
	up.Handle("/openapi/v3", hash("1"))
	core, logs := observer.New(zap.WarnLevel)
	m := mirroringTo(t, up, zap.New(core), nil, widgetDefinition, "configmaps")
	m.awaitReady(t, fakeapiserver.Widgets)
	m.awaitReady(t, fakeapiserver.ConfigMaps)
	eventually(t, "definitions to be refused", m.definitionsHidden.Load)
	eventually(t, "a word on it", func() bool {
		return logs.FilterMessageSnippet("cannot watch customresourcedefinitions").Len() == 1
	})
	e := newTestEpochs(t, m)
	e.check(t.Context())
	before, other := m.Find(fakeapiserver.Widgets), m.Find(fakeapiserver.ConfigMaps)
	e.check(t.Context())
	if m.Find(fakeapiserver.Widgets) != before {
		t.Error("the mirror ended without a reason")
	}
	up.Handle("/openapi/v3", hash("2"))
	e.check(t.Context())
	if !before.Resource().IsClosed() || other.Resource().IsClosed() {
		t.Errorf("ended: widgets %v, configmaps %v", before.Resource().IsClosed(), other.Resource().IsClosed())
	}
	eventually(t, "the resource to be mirrored again, unasked",
		func() bool { return (*m.running.Load())[fakeapiserver.Widgets] != nil })
}
