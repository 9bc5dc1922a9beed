package watchstart

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"spillway/test/framework/exchange"
)

// worker is the only writer of its namespace, so it knows what each watch must show.
type worker struct {
	namespace       string
	direct, proxied way
	maps            corev1client.ConfigMapInterface // straight at the API server
	serial          int
	past            uint64            // the version at the beginning of the last script
	objects         map[string]uint64 // the versions of those that are there between scripts
	log             []write
}

// write is a change of an object, and the types of its event for watches without and with a
// selector by label; empty: none.
type write struct {
	name         string
	version      uint64 // 0: a deletion, whose version no answer tells
	all, byLabel string
}

// seen is the type of the write's event for a watch that selects so, empty if it has none.
func (c write) seen(s selection, one string) string {
	switch {
	case s.one && c.name != one:
		return ""
	case s.label:
		return c.byLabel
	}
	return c.all
}

// standing are the objects that are there between scripts.
var standing = []string{"standing-0", "standing-1", "standing-2"}

func newWorker(ctx context.Context, client *kubernetes.Clientset, namespace string, direct, proxied way) (*worker,
	error) {
	_, err := client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}},
		metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}
	w := &worker{namespace: namespace, direct: direct, proxied: proxied, maps: client.CoreV1().ConfigMaps(namespace),
		objects: map[string]uint64{}}
	for _, name := range standing {
		if err := w.create(ctx, name); err != nil {
			return nil, err
		}
	}
	w.past = w.now()
	return w, nil
}

// now is the version of the last write.
func (w *worker) now() uint64 { return w.log[len(w.log)-1].version }

// script creates, changes, relabels and deletes the object called name, so that it enters and
// leaves each selection, and changes and relabels those that stand. Its last write is no deletion.
// It returns the writes.
func (w *worker) script(ctx context.Context, name string) ([]write, error) {
	begun := len(w.log)
	w.past = w.now()
	for _, write := range []func() error{
		func() error { return w.create(ctx, name) },
		func() error { return w.change(ctx, standing[0]) },
		func() error { return w.change(ctx, name) },
		func() error { return w.relabel(ctx, name, false) },
		func() error { return w.relabel(ctx, standing[1], false) },
		func() error { return w.relabel(ctx, name, true) },
		func() error { return w.relabel(ctx, standing[1], true) },
		func() error { return w.remove(ctx, name) },
		func() error { return w.change(ctx, standing[2]) },
	} {
		if err := write(); err != nil {
			return nil, err
		}
	}
	return w.log[begun:], nil
}

func (w *worker) create(ctx context.Context, name string) error {
	made, err := w.maps.Create(ctx, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"worker": w.namespace}},
	}, metav1.CreateOptions{})
	return w.written(made, err, "ADDED", "ADDED")
}

func (w *worker) change(ctx context.Context, name string) error {
	w.serial++
	return w.patch(ctx, name, fmt.Sprintf(`{"data":{"serial":"%d"}}`, w.serial), "MODIFIED")
}

// relabel takes the worker's label from an object, or gives it back.
func (w *worker) relabel(ctx context.Context, name string, in bool) error {
	if in {
		return w.patch(ctx, name, fmt.Sprintf(`{"metadata":{"labels":{"worker":%q}}}`, w.namespace), "ADDED")
	}
	return w.patch(ctx, name, `{"metadata":{"labels":{"worker":"none"}}}`, "DELETED")
}

func (w *worker) patch(ctx context.Context, name, patch, byLabel string) error {
	made, err := w.maps.Patch(ctx, name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	return w.written(made, err, "MODIFIED", byLabel)
}

func (w *worker) remove(ctx context.Context, name string) error {
	if err := w.maps.Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
		return err
	}
	delete(w.objects, name)
	w.log = append(w.log, write{name: name, all: "DELETED", byLabel: "DELETED"})
	return nil
}

// written notes a write that was answered.
func (w *worker) written(made *corev1.ConfigMap, err error, all, byLabel string) error {
	if err != nil {
		return err
	}
	version := exchange.Number(made.ResourceVersion)
	w.objects[made.Name] = version
	w.log = append(w.log, write{name: made.Name, version: version, all: all, byLabel: byLabel})
	return nil
}
