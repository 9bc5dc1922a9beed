package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
)

// writer changes the objects of a resource, straight at the API server, and knows what that
// acknowledged.
type writer struct {
	client   dynamic.NamespaceableResourceInterface
	resource schema.GroupVersionResource
	rand     *rand.Rand
	era      func() int
	pen      *sync.RWMutex // held while there must be no writes
	writes   atomic.Int64

	// Guarded by mu.
	mu   sync.Mutex
	last ack
	next chan struct{} // closed when a write was acknowledged
}

func newWriter(c dynamic.Interface, r schema.GroupVersionResource, seed uint64, era func() int,
	pen *sync.RWMutex) *writer {
	return &writer{
		client: c.Resource(r), resource: r, rand: rand.New(rand.NewPCG(seed, uint64(len(r.Resource)))), era: era, pen: pen,
		next: make(chan struct{}),
	}
}

// most is how many objects of a resource there are at most.
const most = 16

// writeEvery is between two writes of a writer.
const writeEvery = 60 * time.Millisecond

// serial makes marks that nothing else has, in all runs of a test binary.
var serial atomic.Int64

// run writes until ctx ends. A write that fails may have been made all the same: what it was is the
// recorder's to say.
func (w *writer) run(ctx context.Context) {
	for ctx.Err() == nil {
		w.write(ctx)
		pause(ctx, time.Duration(w.rand.Int64N(int64(2*writeEvery))))
	}
}

// write creates an object, or changes or deletes one that is there.
func (w *writer) write(ctx context.Context) {
	w.pen.RLock()
	defer w.pen.RUnlock()
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	era := w.era()
	namespace, name := namespaces[w.rand.IntN(len(namespaces))], "o"+strconv.Itoa(w.rand.IntN(most/len(namespaces)))
	mark, team := fmt.Sprintf("%d", serial.Add(1)), teams[w.rand.IntN(len(teams))]
	key := namespace + "/" + name
	objects := w.client.Namespace(namespace)
	if w.rand.IntN(6) == 0 {
		was, err := objects.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return
		}
		uid := was.GetUID()
		now := int64(0)
		if objects.Delete(ctx, name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid},
			GracePeriodSeconds: &now}) == nil {
			w.acknowledged(ack{key: key, uid: string(uid), era: era, done: true})
		}
		return
	}
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q},"labels":{%q:%q}}}`, markAnnotation, mark, teamLabel, team)
	is, err := objects.Patch(ctx, name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	if err != nil {
		is, err = objects.Create(ctx, w.object(namespace, name, mark, team), metav1.CreateOptions{})
	}
	if err != nil {
		return
	}
	rv, err := strconv.ParseUint(is.GetResourceVersion(), 10, 64)
	if err == nil {
		w.acknowledged(ack{key: key, rv: rv, era: era, done: true})
	}
}

// object is one of the resource.
func (w *writer) object(namespace, name, mark, team string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{}}
	o.SetNamespace(namespace)
	o.SetName(name)
	o.SetAnnotations(map[string]string{markAnnotation: mark})
	o.SetLabels(map[string]string{teamLabel: team})
	o.SetAPIVersion(w.resource.GroupVersion().String())
	switch w.resource {
	case pods:
		o.SetKind("Pod")
		o.Object["spec"] = map[string]any{"containers": []any{map[string]any{"name": "c", "image": "example.com/c"}}}
	case widgets:
		o.SetKind("Widget")
		o.Object["spec"] = map[string]any{"text": strings.Repeat("w", 200)}
	default:
		o.SetKind("ConfigMap")
		o.Object["data"] = map[string]any{"text": strings.Repeat("c", 2000)}
	}
	return o
}

func (w *writer) acknowledged(a ack) {
	w.writes.Add(1)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.last = a
	close(w.next)
	w.next = make(chan struct{})
}

// acked is the last write that was acknowledged.
func (w *writer) acked() ack {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.last
}

// wait returns the last write once there is another, or after a while.
func (w *writer) wait(ctx context.Context) ack {
	w.mu.Lock()
	next := w.next
	w.mu.Unlock()
	select {
	case <-next:
	case <-ctx.Done():
	case <-time.After(300 * time.Millisecond):
	}
	return w.acked()
}
