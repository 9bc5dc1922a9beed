package cache

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"spillway/internal/object"
)

var errUpstream = errors.New("upstream: no etcd")

func TestAWaitEndsWhenTheVersionIsReached(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := object.NewResource(schema.GroupVersionResource{Version: "v1", Resource: "nodes"}, "Node", false, true)
		r := New(nodes, unlimited, time.Now)
		wait := func(rv uint64, timeout, want time.Duration, wantErr error) {
			t.Helper()
			ctx, cancel := context.WithTimeoutCause(t.Context(), timeout, errUpstream)
			defer cancel()
			start := time.Now()
			if err := r.AwaitRV(ctx, rv); !errors.Is(err, wantErr) || (err == nil) != (wantErr == nil) {
				t.Errorf("through %d: %v, want %v", rv, err, wantErr)
			}
			if took := time.Since(start); took != want {
				t.Errorf("through %d: took %v, want %v", rv, took, want)
			}
		}
		wait(0, time.Second, time.Second, errUpstream)
		time.AfterFunc(time.Second, func() { _ = r.Replace(nil, 20) })
		wait(0, time.Minute, time.Second, nil)
		wait(20, time.Minute, 0, nil)
		time.AfterFunc(1*time.Second, func() { r.Progress(21, 0) })
		time.AfterFunc(2*time.Second, func() { r.Progress(24, 0) })
		wait(22, time.Minute, 2*time.Second, nil)
		wait(25, time.Second, time.Second, errUpstream)
	})
}
