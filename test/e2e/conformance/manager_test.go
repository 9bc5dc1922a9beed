package conformance

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	controllerruntime "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"spillway/test/framework/process"
)

const managed = "managed" // a namespace

// testManager runs controller-runtime's manager through the proxy: a reconciler copies what a
// widget says into a ConfigMap of the same name. In the end the API server has a ConfigMap as
// wanted for every widget that is left.
func (s *suite) testManager(t *testing.T) {
	s.makeNamespace(t, managed)
	controllerruntime.SetLogger(logr.Discard())
	manager, err := controllerruntime.NewManager(rest.CopyConfig(s.plain.Config),
		controllerruntime.Options{Metrics: server.Options{BindAddress: "0"}})
	must(t, err)
	kind := &unstructured.Unstructured{}
	kind.SetAPIVersion(widgetGroup + "/v1")
	kind.SetKind("Widget")
	copier := &sizeReconciler{manager.GetClient()}
	must(t, controllerruntime.NewControllerManagedBy(manager).For(kind).Owns(&corev1.ConfigMap{}).Complete(copier))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- manager.Start(ctx) }()
	t.Cleanup(func() { cancel(); must(t, <-ended) })

	objects := s.dynamic.Resource(widgets).Namespace(managed)
	const many = 12
	for i := range many {
		_, err := objects.Create(ctx, widget(fmt.Sprintf("m-%d", i), "red", int64(i)), metav1.CreateOptions{})
		must(t, err)
	}
	for i := range many {
		name := fmt.Sprintf("m-%d", i)
		_, err := objects.Patch(ctx, name, mergeType, fmt.Appendf(nil, `{"spec":{"size":%d}}`, 100+i), metav1.PatchOptions{})
		must(t, err)
		// it may not exist yet: it must appear again
		_ = s.client.CoreV1().ConfigMaps(managed).Delete(ctx, name, metav1.DeleteOptions{})
	}
	process.Awaiting(t, "every widget to be copied", func(ctx context.Context) error {
		for i := range many {
			name := fmt.Sprintf("m-%d", i)
			o, err := s.client.CoreV1().ConfigMaps(managed).Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			if got, want := o.Data["size"], fmt.Sprint(100+i); got != want {
				return fmt.Errorf("%s: size %s, want %s", name, got, want)
			}
		}
		return nil
	})
	s.show(t, "W-190 W-196 W-233", memory)
}

// sizeReconciler writes a widget's size into a ConfigMap that the widget owns.
type sizeReconciler struct{ client.Client }

// Reconcile implements reconcile.Reconciler.
func (c *sizeReconciler) Reconcile(ctx context.Context, r reconcile.Request) (reconcile.Result, error) {
	source := &unstructured.Unstructured{}
	source.SetAPIVersion(widgetGroup + "/v1")
	source.SetKind("Widget")
	if err := c.Get(ctx, r.NamespacedName, source); err != nil || r.Namespace != managed {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	o := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: r.Namespace, Name: r.Name}}
	_, err := controllerruntime.CreateOrUpdate(ctx, c.Client, o, func() error {
		size, _, err := unstructured.NestedInt64(source.Object, "spec", "size")
		o.Data = map[string]string{"size": fmt.Sprint(size)}
		if err != nil {
			return err
		}
		return controllerruntime.SetControllerReference(source, o, c.Scheme())
	})
	if err != nil {
		return reconcile.Result{RequeueAfter: time.Millisecond}, nil // conflicts and races are the point: try again
	}
	return reconcile.Result{}, nil
}
