// Package sourcetest makes sources for tests: of a few resources, without a mirror, with an
// upstream that the test plays.
package sourcetest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"spillway/internal/cache"
	"spillway/internal/codec"
	"spillway/internal/fanout"
	"spillway/internal/freshness"
	"spillway/internal/object"
	"spillway/internal/source"
)

// Resources that tests use: namespaced and not, with and without a group, built in and custom.
var (
	Pods        = object.NewResource(v1("", "pods"), "Pod", true, true)
	Nodes       = object.NewResource(v1("", "nodes"), "Node", false, true)
	Namespaces  = object.NewResource(v1("", "namespaces"), "Namespace", false, true)
	Deployments = object.NewResource(v1("apps", "deployments"), "Deployment", true, true)
	Widgets     = object.NewResource(v1("example.com", "widgets"), "Widget", true, false,
		object.Field{Label: "spec.color", Path: []string{"spec", "color"}})
)

func v1(group, resource string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: group, Version: "v1", Resource: resource}
}

// Resources is a source.Catalog that does not change.
type Resources map[schema.GroupVersionResource]*source.Source

// Find implements source.Catalog.
func (f Resources) Find(gvr schema.GroupVersionResource) *source.Source { return f[gvr] }

// Knows implements source.Catalog.
func (f Resources) Knows(gvr schema.GroupVersionResource) bool { return f[gvr] != nil }

// Soon implements source.Catalog.
func (Resources) Soon(schema.GroupVersionResource) bool { return false }

// Unreachable is a freshness.Upstream: an upstream that proves nothing.
type Unreachable struct{}

// Begin implements freshness.Upstream.
func (Unreachable) Begin(context.Context) (uint64, freshness.Proof, error) {
	return 0, nil, errors.New("upstream is gone")
}

// State implements freshness.Upstream.
func (Unreachable) State(context.Context) (uint64, map[string]uint64, error) {
	return 0, nil, errors.New("upstream is gone")
}

// KeepAll keeps all history that a test can make.
var KeepAll = cache.HistoryLimits{HistoryBytes: 1 << 30, HistoryMinAge: time.Hour}

// New is a source of one resource, complete through rv and with these objects.
func New(t testing.TB, info *object.Resource, prober freshness.Upstream, rv uint64, objects ...string) *source.Source {
	t.Helper()
	r := cache.New(info, KeepAll, time.Now)
	if err := r.Replace(Parse(t, info, objects...), rv); err != nil {
		t.Fatal(err)
	}
	return &source.Source{Hub: fanout.NewHub(r), Fresh: freshness.New(r, prober), Codec: NewCodec(info)}
}

// NewCodec offers all that it can make.
func NewCodec(info *object.Resource) *codec.Codec {
	release := codec.SchemaVersionOf(37)
	release.SetUpstream("37")
	return codec.New(info, release)
}

// Parse are objects named "namespace/name rv [label=value]…".
func Parse(t testing.TB, info *object.Resource, objects ...string) []*object.Object {
	t.Helper()
	var out []*object.Object
	for _, text := range objects {
		out = append(out, ParseOne(t, info, text))
	}
	return out
}

// ParseOne is Parse of one object.
func ParseOne(t testing.TB, info *object.Resource, text string) *object.Object {
	t.Helper()
	words := strings.Fields(text)
	namespace, name, _ := strings.Cut(words[0], "/")
	meta := fmt.Sprintf(`"name":%q,"namespace":%q,"uid":%q,"resourceVersion":%q`,
		name, namespace, "uid-"+words[0], words[1])
	if !info.Namespaced {
		meta = fmt.Sprintf(`"name":%q,"uid":%q,"resourceVersion":%q`, words[0], "uid-"+words[0], words[1])
	}
	var pairs []string
	for _, label := range words[2:] {
		k, v, _ := strings.Cut(label, "=")
		pairs = append(pairs, fmt.Sprintf("%q:%q", k, v))
	}
	if len(pairs) > 0 {
		meta += `,"labels":{` + strings.Join(pairs, ",") + "}"
	}
	head := fmt.Sprintf(`{"kind":%q,"apiVersion":%q,`, info.Kind, info.APIVersion())
	if !info.Builtin {
		head = fmt.Sprintf(`{"apiVersion":%q,"kind":%q,`, info.APIVersion(), info.Kind)
	}
	o, err := info.Parse([]byte(head + `"metadata":{` + meta + "}}"))
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// Oracle is an upstream that reports its position when the test lets it.
type Oracle struct {
	mu   sync.Mutex
	rv   uint64
	err  error
	took time.Duration // how long it takes to say how far it is
	open chan struct{} // closed: proofs come at once
}

// NewOracle is an upstream that is at rv, and proves it at once.
func NewOracle(rv uint64) *Oracle {
	o := &Oracle{rv: rv, open: make(chan struct{})}
	close(o.open)
	return o
}

// Hold lets proofs wait until release.
func (o *Oracle) Hold() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.open = make(chan struct{})
}

// Release ends Hold.
func (o *Oracle) Release() {
	o.mu.Lock()
	defer o.mu.Unlock()
	close(o.open)
}

// Set sets how far upstream is, or why it does not say.
func (o *Oracle) Set(rv uint64, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.rv, o.err = rv, err
}

func (o *Oracle) state() (uint64, chan struct{}, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.rv, o.open, o.err
}

// Slow lets it take its time to say how far it is.
func (o *Oracle) Slow(took time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.took = took
}

// Begin implements freshness.Upstream.
func (o *Oracle) Begin(ctx context.Context) (uint64, freshness.Proof, error) {
	o.mu.Lock()
	rv, err, took := o.rv, o.err, o.took
	o.mu.Unlock()
	if took > 0 {
		select {
		case <-time.After(took):
		case <-ctx.Done():
			return 0, nil, ctx.Err()
		}
	}
	return rv, o, err
}

// watchTimeout is when a watch for a bookmark ends.
const watchTimeout = 3 * time.Second

// Prove implements freshness.Proof.
func (o *Oracle) Prove(ctx context.Context, _ uint64) (bookmark, last uint64, err error) {
	rv, open, _ := o.state()
	select {
	case <-open:
		return rv, 0, nil
	case <-time.After(watchTimeout):
		return 0, 0, nil
	case <-ctx.Done():
		return 0, 0, ctx.Err()
	}
}

// State implements freshness.Upstream: this upstream knows no watch-lists.
func (o *Oracle) State(context.Context) (uint64, map[string]uint64, error) {
	return 0, nil, errors.New("no watch-lists")
}

// Close implements freshness.Proof.
func (o *Oracle) Close() {}
