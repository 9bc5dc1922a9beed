package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"golang.org/x/sync/errgroup"
	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

const (
	namespace = "bench"

	busyObjects  = 500
	quietObjects = 1000 // more than the proxy compares at once: proven by a bookmark
	fewObjects   = 400  // proven by comparison
)

// makeObjects makes what is read, about a kibibyte each.
func makeObjects(ctx context.Context, clients kubernetes.Interface) error {
	core := clients.CoreV1()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
	if _, err := core.Namespaces().Create(ctx, ns, metav1.CreateOptions{}); err != nil {
		return err
	}
	meta := func(kind string, i int) metav1.ObjectMeta {
		return metav1.ObjectMeta{Name: fmt.Sprintf("%s-%04d", kind, i),
			Annotations: map[string]string{"padding": strings.Repeat("x", 700)}}
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(16)
	for i := range busyObjects {
		group.Go(func() error {
			_, err := core.ConfigMaps(namespace).Create(ctx, &corev1.ConfigMap{ObjectMeta: meta("busy", i)},
				metav1.CreateOptions{})
			return err
		})
	}
	for i := range quietObjects {
		group.Go(func() error {
			_, err := core.PodTemplates(namespace).Create(
				ctx, &corev1.PodTemplate{ObjectMeta: meta("quiet", i), Template: template}, metav1.CreateOptions{})
			return err
		})
	}
	for i := range fewObjects {
		group.Go(func() error {
			_, err := core.LimitRanges(namespace).Create(ctx, &corev1.LimitRange{ObjectMeta: meta("few", i)},
				metav1.CreateOptions{})
			return err
		})
	}
	return group.Wait()
}

var template = corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}}

// write changes the busy resource until ctx ends, and returns how often.
func write(ctx context.Context, clients kubernetes.Interface, perSecond float64) (int, error) {
	pace := rate.NewLimiter(rate.Limit(perSecond), 1)
	for n := 0; ; n++ {
		if err := pace.Wait(ctx); err != nil {
			return n, nil // only ctx ends it
		}
		name := fmt.Sprintf("busy-%04d", n%busyObjects)
		patch := []byte(`{"data":{"turn":"` + strconv.Itoa(n) + `"}}`)
		_, err := clients.CoreV1().ConfigMaps(namespace).Patch(ctx, name, "application/merge-patch+json", patch,
			metav1.PatchOptions{})
		if err != nil && !errors.Is(err, context.Canceled) {
			return n, err
		}
	}
}
