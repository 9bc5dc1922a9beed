package clients

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"spillway/test/framework/controlplane"
	"spillway/test/framework/process"
)

// With --strip-managed-fields, what comes from memory is the API server's but for the
// managedFields, in every format and on watches, and a client that applies notices nothing.
func TestStripManagedFields(t *testing.T) {
	ctx := t.Context()
	cp, w := startCluster(t)
	p := process.StartProxy(t, process.BuildProxy(t), "--kubeconfig="+cp.Kubeconfig(controlplane.Admin),
		"--resources=pods", "--listen-identity=self", "--strip-managed-fields")
	want, err := w.client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
	must(t, err)
	for i := range want.Items {
		strip(t, &want.Items[i])
	}
	for _, contentType := range []string{runtime.ContentTypeJSON, runtime.ContentTypeProtobuf} {
		t.Run(contentType, func(t *testing.T) {
			client, err := kubernetes.NewForConfig(
				&rest.Config{Host: p.Plain, ContentConfig: rest.ContentConfig{ContentType: contentType}})
			must(t, err)
			pods := client.CoreV1().Pods(namespace)
			got, err := pods.List(ctx, metav1.ListOptions{ResourceVersion: "0"})
			must(t, err)
			if !equality.Semantic.DeepEqual(got.Items, want.Items) {
				t.Errorf("the list is\n%v\nwant\n%v", got.Items, want.Items)
			}
			one, err := pods.Get(ctx, want.Items[0].Name, metav1.GetOptions{ResourceVersion: "0"})
			must(t, err)
			if !equality.Semantic.DeepEqual(one, &want.Items[0]) {
				t.Errorf("the object is\n%v\nwant\n%v", one, want.Items[0])
			}

			events, err := pods.Watch(ctx, metav1.ListOptions{ResourceVersion: got.ResourceVersion})
			must(t, err)
			defer events.Stop()
			// Apply needs nothing of what is there: the API server merges.
			applied, err := pods.Patch(ctx, one.Name, types.ApplyPatchType,
				[]byte(`{"apiVersion":"v1","kind":"Pod","metadata":{"annotations":{"by":"`+contentType+`"}}}`),
				metav1.PatchOptions{FieldManager: "test"})
			must(t, err)
			strip(t, applied)
			if e := <-events.ResultChan(); !equality.Semantic.DeepEqual(e.Object, applied) {
				t.Errorf("the event is\n%v\nwant\n%v", e.Object, applied)
			}
			want.Items[0] = *applied
		})
	}
}

// strip takes the managedFields off a pod, which has some.
func strip(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	if len(pod.ManagedFields) == 0 {
		t.Fatalf("%s has no managedFields", pod.Name)
	}
	pod.ManagedFields = nil
}
