package main

import (
	"strings"
	"testing"

	"go.uber.org/zap"

	"spillway/internal/config"
)

// Outside of a pod there is nothing to copy.
func TestSidecarNeedsAnAccount(t *testing.T) {
	o := config.New()
	o.SidecarDir = t.TempDir()
	_, err := newPodFiles(o, zap.NewNop())
	want := "--sidecar-dir=" + o.SidecarDir +
		": cannot be filled: /var/run/secrets/kubernetes.io/serviceaccount/token: no such file or directory"
	if err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("%v; want %s", err, want)
	}
}
