package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"

	"golang.org/x/sync/errgroup"
	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes"
)

// writer creates, changes and deletes objects of its own, straight at the API server.
type writer struct {
	id      int
	client  kubernetes.Interface
	truth   *acknowledgedWrites
	random  *rand.Rand
	objects []*corev1.PodTemplate // that exist
	made    int
}

// writeAll does n writes with several writers at about so many per second.
func writeAll(ctx context.Context, writers []*writer, n int, perSecond float64) error {
	pace := rate.NewLimiter(rate.Limit(perSecond), len(writers))
	group, ctx := errgroup.WithContext(ctx)
	for i, w := range writers {
		share := n / len(writers)
		if i < n%len(writers) {
			share++
		}
		group.Go(func() error {
			for range share {
				if err := pace.Wait(ctx); err != nil {
					return err
				}
				if err := w.write(ctx); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return group.Wait()
}

// write does one write: mostly a change, as in life.
func (w *writer) write(ctx context.Context) error {
	switch dice := w.random.IntN(10); {
	case len(w.objects) < 4 || dice < 3:
		return w.create(ctx)
	case dice < 8:
		return w.update(ctx)
	default:
		return w.delete(ctx)
	}
}

func (w *writer) create(ctx context.Context) error {
	w.made++
	made, err := w.client.CoreV1().PodTemplates(namespaces[w.random.IntN(len(namespaces))]).Create(ctx, w.object(),
		metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("create: %w", err)
	}
	w.objects = append(w.objects, made)
	return w.record(made, nil, made.Labels)
}

func (w *writer) object() *corev1.PodTemplate {
	return &corev1.PodTemplate{
		ObjectMeta: metav1.ObjectMeta{
			Name:        fmt.Sprintf("w%d-%d", w.id, w.made),
			Labels:      map[string]string{"tier": w.tier()},
			Annotations: map[string]string{"padding": strings.Repeat("x", 1000), "turn": "0"},
		},
		Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c",
			Image: "example.com/c:1"}}}},
	}
}

func (w *writer) tier() string { return []string{"front", "back"}[w.random.IntN(2)] }

func (w *writer) update(ctx context.Context) error {
	i := w.random.IntN(len(w.objects))
	old := w.objects[i]
	changed := old.DeepCopy()
	changed.Labels["tier"] = w.tier()
	turn, err := strconv.Atoi(old.Annotations["turn"])
	if err != nil {
		return err
	}
	changed.Annotations["turn"] = strconv.Itoa(turn + 1) // always a change, so always an event
	updated, err := w.client.CoreV1().PodTemplates(old.Namespace).Update(ctx, changed, metav1.UpdateOptions{})
	if err != nil {
		return fmt.Errorf("update: %w", err)
	}
	w.objects[i] = updated
	return w.record(updated, old.Labels, updated.Labels)
}

// delete relies on podtemplates being answered with the deleted object, which bears the version of
// the deletion.
func (w *writer) delete(ctx context.Context) error {
	i := w.random.IntN(len(w.objects))
	old := w.objects[i]
	var deleted corev1.PodTemplate
	err := w.client.CoreV1().RESTClient().Delete().Namespace(old.Namespace).Resource(resource).Name(old.Name).Do(ctx).Into(
		&deleted)
	if err != nil {
		return fmt.Errorf("delete: %w", err)
	}
	w.objects[i] = w.objects[len(w.objects)-1]
	w.objects = w.objects[:len(w.objects)-1]
	if deleted.ResourceVersion == old.ResourceVersion {
		return fmt.Errorf("the answer to the deletion of %s does not bear its version", old.Name)
	}
	return w.record(&deleted, old.Labels, nil)
}

func (w *writer) record(o *corev1.PodTemplate, before, after map[string]string) error {
	rv, err := strconv.ParseUint(o.ResourceVersion, 10, 64)
	if err != nil {
		return err
	}
	w.truth.add(change{rv: rv, namespace: o.Namespace, name: o.Name, before: labels.Set(before), after: labels.Set(after)})
	return nil
}
