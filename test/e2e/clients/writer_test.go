package clients

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
)

const (
	writtenObjects = 20
	writeInterval  = 50 * time.Millisecond
	// marker is an object that each client sees; its value says how far the client is.
	marker = "marker"
)

// writer changes ConfigMaps, and a Service of the same name and metadata with each, and remembers
// what a client of those labelled seen=true holds, and what its handlers receive. Each write is
// repeated until it is done: doing it twice changes nothing, so the record is exact even if
// kube-apiserver ends meanwhile.
type writer struct {
	client kubernetes.Interface
	random *rand.Rand
	ended  sync.WaitGroup
	stop   context.CancelFunc

	mu      sync.Mutex
	objects map[string]writtenObject
	changes map[string][]string
	value   int
}

// writtenObject is an object.
type writtenObject struct {
	seen  bool
	value string
}

func newWriter(client kubernetes.Interface) *writer {
	return &writer{client: client, random: rand.New(rand.NewPCG(1, 1)), // #nosec G404 -- reproducible
		objects: map[string]writtenObject{}, changes: map[string][]string{}}
}

// start writes until end.
func (w *writer) start(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	w.stop = cancel
	w.ended.Go(func() {
		for ctx.Err() == nil {
			if err := w.one(t.Context()); err != nil && t.Context().Err() == nil {
				t.Error(err)
				return
			}
			time.Sleep(writeInterval)
		}
	})
	t.Cleanup(w.end)
}

func (w *writer) end() {
	w.stop()
	w.ended.Wait()
}

// counts is how many changes each object has had.
func (w *writer) counts() map[string]int {
	w.mu.Lock()
	defer w.mu.Unlock()
	counts := map[string]int{}
	for name, changes := range w.changes {
		counts[name] = len(changes)
	}
	return counts
}

// one changes one object at random.
func (w *writer) one(ctx context.Context) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	name := fmt.Sprint("object-", w.random.IntN(writtenObjects))
	if _, ok := w.objects[name]; ok && w.random.IntN(5) == 0 {
		return w.remove(ctx, name)
	}
	return w.put(ctx, name, w.random.IntN(4) > 0)
}

// mark changes the marker, and returns its value.
func (w *writer) mark(t *testing.T) string {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	must(t, w.put(t.Context(), marker, true))
	return w.objects[marker].value
}

func (w *writer) put(ctx context.Context, name string, seen bool) error {
	w.value++
	o := writtenObject{seen, strconv.Itoa(w.value) + " <&> ü \u2028"}
	old, existed := w.objects[name]
	meta := metav1.ObjectMeta{Name: name, Labels: map[string]string{"seen": strconv.FormatBool(seen)},
		Annotations: map[string]string{"value": o.value}}
	maps, services := w.client.CoreV1().ConfigMaps(namespace), w.client.CoreV1().Services(namespace)
	patch := fmt.Appendf(nil, `{"metadata":{"labels":{"seen":"%t"},"annotations":{"value":%q}}}`, seen, o.value)
	err := repeat(ctx, func(ctx context.Context) error {
		if existed {
			_, err := maps.Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
			return err
		}
		_, err := maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: meta}, metav1.CreateOptions{})
		return ignore(apierrors.IsAlreadyExists, err)
	}, func(ctx context.Context) error {
		if existed {
			_, err := services.Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
			return err
		}
		_, err := services.Create(ctx, &corev1.Service{ObjectMeta: meta, Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeExternalName, ExternalName: "example.com"}}, metav1.CreateOptions{})
		return ignore(apierrors.IsAlreadyExists, err)
	})
	if err != nil {
		return err
	}
	w.objects[name] = o
	switch {
	case seen && existed && old.seen:
		w.changes[name] = append(w.changes[name], "update "+o.value)
	case seen:
		w.changes[name] = append(w.changes[name], "add "+o.value)
	case existed && old.seen:
		w.changes[name] = append(w.changes[name], "delete")
	}
	return nil
}

func (w *writer) remove(ctx context.Context, name string) error {
	err := repeat(ctx, func(ctx context.Context) error {
		return ignore(apierrors.IsNotFound, w.client.CoreV1().ConfigMaps(namespace).Delete(ctx, name, metav1.DeleteOptions{}))
	}, func(ctx context.Context) error {
		return ignore(apierrors.IsNotFound, w.client.CoreV1().Services(namespace).Delete(ctx, name, metav1.DeleteOptions{}))
	})
	if err != nil {
		return err
	}
	if w.objects[name].seen {
		w.changes[name] = append(w.changes[name], "delete")
	}
	delete(w.objects, name)
	return nil
}

// repeat does each step until it is done.
func repeat(ctx context.Context, steps ...func(context.Context) error) error {
	for _, step := range steps {
		for tries := 0; ; tries++ {
			once, cancel := context.WithTimeout(ctx, 5*time.Second)
			err := step(once)
			cancel()
			if err == nil {
				break
			}
			if ctx.Err() != nil || tries == 600 {
				return err
			}
			time.Sleep(100 * time.Millisecond)
		}
	}
	return nil
}

func ignore(kind func(error) bool, err error) error {
	if kind(err) {
		return nil
	}
	return err
}

// listed is what the API server lists directly.
func (w *writer) listed(t *testing.T, selector string) map[string]string {
	t.Helper()
	list, err := w.client.CoreV1().ConfigMaps(namespace).List(t.Context(), metav1.ListOptions{LabelSelector: selector})
	must(t, err)
	objects := map[string]string{}
	for _, o := range list.Items {
		objects[o.Name] = o.Annotations["value"]
	}
	return objects
}
