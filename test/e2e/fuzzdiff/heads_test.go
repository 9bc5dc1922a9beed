package fuzzdiff

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"path"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"spillway/test/framework/controlplane"
	"spillway/test/framework/exchange"
	"spillway/test/framework/process"
)

// A client that writes when it has the head of a watch, of any kind, receives the write as from the
// API server (W-100).
func TestRandomWatchesHaveWhatFollowsTheHead(t *testing.T) {
	h := newHeads(newWorld(t, process.BuildProxy(t), controlplane.Options{}, nil), process.Patience)
	ctx, cancel := context.WithTimeout(t.Context(), time.Duration(*minutes*float64(time.Minute)))
	defer cancel()
	for _, finding := range h.play(ctx, t) {
		t.Error(finding)
	}
	t.Logf("seed %d: %s", *seed, h)
	if h.seen.Load() == 0 {
		t.Error("no watch received the event of a write")
	}
}

// A proxy that fixes the place of a watch after its head is found.
func TestPlantedLateSnapshot(t *testing.T) {
	if testing.Short() {
		t.Skip("builds a proxy of its own")
	}
	const patience = 3 * time.Second // what such a proxy loses never comes
	binary := process.BuildFaultyProxy(t, process.LateSnapshot)
	h := newHeads(newWorld(t, binary, controlplane.Options{}, nil), patience)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	h.onFinding = cancel
	found := h.play(ctx, t)
	if len(found) == 0 {
		t.Fatalf("not found: %s", h)
	}
	t.Logf("found among %s\n%s", h, found[0])
}

// heads starts the watches among random requests, and writes when the heads of both answers are
// there.
type heads struct {
	*world
	*Fuzzer
	patience time.Duration // with an event that the other answer has
	// onFinding is called for each finding, by several goroutines.
	onFinding func()

	started, refused, seen, ended atomic.Int64
}

func newHeads(w *world, patience time.Duration) *heads {
	return &heads{world: w, Fuzzer: &Fuzzer{Ways: w.ways, Workers: 16, Seed: *seed}, patience: patience,
		onFinding: func() {}}
}

// String says how many watches there were.
func (h *heads) String() string {
	return fmt.Sprintf("%d watches: %d received the event of the write, %d ended before it, %d were refused by the proxy",
		h.started.Load(), h.seen.Load(), h.ended.Load(), h.refused.Load())
}

// play makes the random requests, as long as ctx lasts, and starts those that are watches.
func (h *heads) play(ctx context.Context, t *testing.T) (found []Finding) {
	for round := 0; uint64(round)*perRound < *requests && ctx.Err() == nil && len(found) == 0; round++ {
		state := h.round(t, round)
		state.Versions = h.rounds[round] // older ones may be forgotten, because writes are many
		first := uint64(round) * perRound
		found = h.each(ctx, first, min(first+perRound, *requests), func(number uint64) *Finding {
			finding, err := h.start(t.Context(), state, number)
			if err != nil {
				t.Errorf("request %d: %v", number, err)
			}
			if finding != nil {
				h.onFinding()
			}
			return finding
		})
	}
	return found
}

// start makes the request of a number, in a state in which every name is that of its own object. If
// it is a watch, it writes that object when both heads are there.
func (h *heads) start(ctx context.Context, state *State, number uint64) (*Finding, error) {
	ctx, cancel := context.WithCancel(ctx) // which ends both watches
	defer cancel()
	name := fmt.Sprintf("head-%d", number)
	a, way := h.generate(named(state, name), number)
	r, namespace, ok := watched(a)
	if !ok {
		return nil, nil
	}
	if namespace == "" {
		namespace = namespaces[number%uint64(len(namespaces))]
	}
	a.header, a.lasts = without(a.header, "Accept-Encoding"), 600
	write := writes[rand.New(rand.NewPCG(h.Seed, ^number)).IntN(len(writes))]
	o, err := h.newObject(ctx, r, namespace, name, write)
	if err != nil {
		return nil, err
	}
	defer func() { _ = o.remove(ctx) }() // it may not be there
	direct, err := o.watch(ctx, way.Direct, a.request())
	if err != nil || direct == nil {
		return nil, nil // the API server answers this with no watch
	}
	h.started.Add(1)
	proxied, err := o.watch(ctx, way.Proxied, a.request())
	if err != nil {
		return nil, err
	}
	if proxied == nil {
		h.refused.Add(1)
		return nil, nil
	}
	if err := write.do(o, ctx); err != nil {
		return nil, err
	}
	if h.agree(direct, proxied) {
		return nil, nil
	}
	problem := fmt.Sprintf("%s of %s %s/%s after the head:\n  direct  %s\n  proxied %s", write.name, r.Plural, namespace,
		name, direct, proxied)
	return &Finding{Seed: h.Seed, Number: number, Way: way, Found: a, Shrunk: a, Problems: []string{problem}, Tries: 1,
		Seen: 1}, nil
}

// silence is how long each of two watches is waited for that both have no event. A slower event is
// not compared.
const silence = time.Second

// agree waits for the event of the write in both watches, if it is in one.
func (h *heads) agree(direct, proxied *watch) bool {
	direct.await(silence)
	proxied.await(silence)
	if proxied.event != nil {
		direct.await(h.patience)
	}
	if direct.event != nil {
		proxied.await(h.patience)
		h.seen.Add(1)
	}
	// An API server ends watches that it has no time for.
	if direct.ended || proxied.ended && (proxied.passed || direct.event == nil) {
		h.ended.Add(1)
		return true
	}
	return direct.same(proxied)
}

// named is a state in which the objects of each resource have one name.
func named(state *State, name string) *State {
	own := *state
	own.Resources = slices.Clone(state.Resources)
	for i := range own.Resources {
		own.Resources[i].Names = []string{name}
	}
	return &own
}

// watched is the collection that a request watches. ok is false if it is no watch, or one whose
// events do not name their object.
func watched(a ask) (r Resource, namespace string, ok bool) {
	if a.method != http.MethodGet || !a.watches() ||
		slices.ContainsFunc(a.header, func(f field) bool { return strings.Contains(f.value, "as=Table") }) {
		return Resource{}, "", false
	}
	for _, r := range resources {
		for _, namespace := range append(namespaces, "") {
			deprecated := r.deprecated(namespace)
			if a.path == r.collection(namespace) || a.path == deprecated || strings.HasPrefix(a.path, deprecated+"/") {
				return r, namespace, true
			}
		}
	}
	return Resource{}, "", false
}

// object is one that is written when its watches have their heads.
type object struct {
	client dynamic.ResourceInterface
	model  *unstructured.Unstructured
	before uint64 // its version before the write; 0: it was not there
}

// write is a change of an object.
type write struct {
	name     string
	creation bool
	do       func(*object, context.Context) error
}

var writes = []write{
	{name: "creation", creation: true, do: (*object).create},
	{name: "change", do: (*object).change},
	{name: "deletion", do: (*object).remove},
}

// newObject prepares an object for a write.
func (w *world) newObject(ctx context.Context, r Resource, namespace, name string, write write) (*object, error) {
	model, err := w.objects(r, "a").Get(ctx, r.Names[0], metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	delete(model.Object, "metadata")
	unstructured.RemoveNestedField(model.Object, "spec", "clusterIP") // which is another service's
	unstructured.RemoveNestedField(model.Object, "spec", "clusterIPs")
	model.SetName(name)
	model.SetLabels(map[string]string{"app": "x", "tier": "1"})
	o := &object{client: w.objects(r, namespace), model: model}
	if write.creation {
		return o, nil
	}
	made, err := o.client.Create(ctx, model, metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}
	o.before = exchange.Number(made.GetResourceVersion())
	return o, nil
}

func (o *object) create(ctx context.Context) error {
	_, err := o.client.Create(ctx, o.model, metav1.CreateOptions{})
	return err
}

func (o *object) change(ctx context.Context) error {
	_, err := o.client.Patch(ctx, o.model.GetName(), types.MergePatchType,
		[]byte(`{"metadata":{"labels":{"app":"y","tier":"5"}}}`), metav1.PatchOptions{})
	return err
}

func (o *object) remove(ctx context.Context) error {
	return o.client.Delete(ctx, o.model.GetName(), metav1.DeleteOptions{GracePeriodSeconds: new(int64)})
}

// watch is an open watch, of which the event of a write is wanted.
type watch struct {
	passed bool // the API server's own answer
	kind   string
	events <-chan exchange.Event // the one event, or closed without it
	event  *exchange.Event
	ended  bool
}

// watch starts a watch and returns when its head is here: nil if it is refused.
func (o *object) watch(ctx context.Context, e *exchange.Endpoint, r exchange.Request) (*watch, error) {
	out, err := e.NewRequest(ctx, r)
	if err != nil {
		return nil, err
	}
	response, err := e.Client.Do(out)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", e.Name, err)
	}
	if response.StatusCode != http.StatusOK {
		response.Body.Close()
		return nil, nil
	}
	events := make(chan exchange.Event, 1)
	go o.read(response, events)
	return &watch{passed: response.Header.Get(exchange.FlowControl) != "", kind: response.Header.Get("Content-Type"),
		events: events}, nil
}

// read reads a watch up to the first event of the object that is newer than the object was.
func (o *object) read(response *http.Response, events chan<- exchange.Event) {
	defer close(events)
	defer response.Body.Close()
	a := exchange.Answer{Header: response.Header}
	for chunk := make([]byte, 32<<10); ; {
		n, err := response.Body.Read(chunk)
		a.Body = append(a.Body, chunk[:n]...)
		all, _ := a.Events() // the last one may not be here as a whole
		for _, e := range all {
			if path.Base(e.Name) == o.model.GetName() && e.Version > o.before {
				events <- e
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// await waits for the event.
func (w *watch) await(within time.Duration) {
	if w.event != nil || w.ended {
		return
	}
	select {
	case e, ok := <-w.events:
		if w.ended = !ok; ok {
			w.event = &e
		}
	case <-time.After(within):
	}
}

// same reports that both watches have the same event, or none. It may look different in two
// formats.
func (w *watch) same(other *watch) bool {
	if w.event == nil || other.event == nil {
		return w.event == other.event
	}
	return w.event.Type == other.event.Type && w.event.Version == other.event.Version &&
		(w.kind != other.kind || bytes.Equal(w.event.Line, other.event.Line))
}

func (w *watch) String() string {
	switch {
	case w.event != nil:
		return exchange.Clip(bytes.TrimSpace(w.event.Line))
	case w.ended:
		return "(ended)"
	}
	return "(none)"
}
