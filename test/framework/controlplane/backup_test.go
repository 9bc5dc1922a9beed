package controlplane

import (
	"path/filepath"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// testRestore puts a copy of etcd back: what came after it has never been, and its revision is the
// copy's unless some are skipped.
func testRestore(t *testing.T, cp *ControlPlane) {
	backup := filepath.Join(t.TempDir(), "etcd")
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	configMaps := client(t, cp, Admin).CoreV1().ConfigMaps("default")
	_, err := configMaps.Create(t.Context(), configMap("before"), metav1.CreateOptions{})
	must(err)
	must(cp.BackupEtcd(backup))
	_, err = configMaps.Create(t.Context(), configMap("after"), metav1.CreateOptions{})
	must(err)
	later, err := cp.Revision(t.Context())
	must(err)
	must(cp.RestoreEtcd(t.Context(), backup))
	restored, err := cp.Revision(t.Context())
	must(err)
	if restored >= later {
		t.Errorf("the revision is %d, after %d", restored, later)
	}
	skipped, err := cp.SkipRevisions(t.Context(), 100)
	must(err)
	if skipped < restored+100 {
		t.Errorf("the revision is %d, less than 100 above %d", skipped, restored)
	}
	must(cp.StartAPIServer(t.Context()))
	if _, err := configMaps.Get(t.Context(), "before", metav1.GetOptions{}); err != nil {
		t.Errorf("what was in the copy: %v", err)
	}
	if _, err := configMaps.Get(t.Context(), "after", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("what was not in the copy: %v", err)
	}
}

// testThawWhileStarting thaws the etcd that an API server waits for.
func testThawWhileStarting(t *testing.T, cp *ControlPlane) {
	cp.StopAPIServer()
	if err := cp.FreezeEtcd(); err != nil {
		t.Fatal(err)
	}
	started := make(chan error, 1)
	go func() { started <- cp.StartAPIServer(t.Context()) }()
	for cp.apiserver.starting.TryLock() { // until it starts
		cp.apiserver.starting.Unlock()
	}
	if err := cp.ThawEtcd(); err != nil {
		t.Fatal(err)
	}
	if err := <-started; err != nil {
		t.Fatal(err)
	}
}
