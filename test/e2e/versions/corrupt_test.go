package main

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"spillway/internal/fakeapiserver/rawclient"
	"spillway/internal/testutil"
	"spillway/test/framework/controlplane"
	"spillway/test/framework/process"
)

// TestCorruptObject makes an object in etcd unreadable, and deletes it. Meanwhile the API server
// fails the whole resource. A client's watch goes on, and receives the deletion in the end.
func TestCorruptObject(t *testing.T) {
	cp, err := controlplane.Start(t.Context(), controlplane.Options{Log: t.Output()})
	must(t, err)
	t.Cleanup(cp.Stop)
	client, err := kubernetes.NewForConfig(cp.Config(controlplane.Admin))
	must(t, err)
	maps := client.CoreV1().ConfigMaps("default")
	for _, name := range []string{"corrupt", "other"} {
		_, err := maps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}},
			metav1.CreateOptions{})
		must(t, err)
	}
	proxy := process.StartProxy(t, process.BuildProxy(t), "--kubeconfig="+cp.Kubeconfig(controlplane.Admin),
		"--resources=configmaps", "--listen=127.0.0.1:0", "--listen-identity=self")
	w := rawclient.Watch(t.Context(), proxy.Plain, path+"?watch=1&resourceVersion=0&timeoutSeconds=600")
	defer w.Close()
	for seen := map[string]bool{}; !seen["default/corrupt"] || !seen["default/other"]; {
		e, err := w.Next(testutil.Deadline(t))
		must(t, err)
		seen[e.Key] = true
	}
	key := []byte("/registry/configmaps/default/corrupt")
	must(t, cp.EtcdCall(t.Context(), "put", map[string][]byte{"key": key, "value": []byte("corrupt")}, nil))
	testutil.Eventually(t, "the API server to fail", func() bool {
		_, err := maps.List(t.Context(), metav1.ListOptions{})
		return err != nil
	})
	_, err = maps.List(t.Context(), metav1.ListOptions{})
	t.Logf("the API server says: %v\n%s", err, ready(t, proxy.Metrics))
	must(t, cp.EtcdCall(t.Context(), "deleterange", map[string][]byte{"key": key}, nil))
	e, err := w.Next(testutil.Deadline(t))
	if err != nil || e.Type != "DELETED" || e.Key != "default/corrupt" {
		t.Fatalf("the watch received %v, %v", e, err)
	}
	testutil.Eventually(t, "the API server to serve again", func() bool {
		_, err := maps.List(t.Context(), metav1.ListOptions{})
		return err == nil
	})
	last, err := maps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "last"}},
		metav1.CreateOptions{})
	must(t, err)
	if e, err := w.Next(testutil.Deadline(t)); err != nil || fmt.Sprint(e.RV) != last.ResourceVersion {
		t.Errorf("the watch received %v, %v", e, err)
	}
}
