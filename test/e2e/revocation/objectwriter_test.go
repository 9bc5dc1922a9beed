package revocation

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"spillway/test/framework/authcluster"
	"spillway/test/framework/exchange"
)

// objectWriter writes to an object in each of some namespaces, again and again.
type objectWriter struct {
	cluster    *authcluster.Cluster
	namespaces []string

	mu   sync.Mutex
	last map[string]uint64 // the resourceVersion of what was written, by namespace
}

const scribbled = "scribbled"

// newScribe makes the namespaces and the objects.
func newScribe(t *testing.T, c *authcluster.Cluster, namespaces ...string) *objectWriter {
	t.Helper()
	s := &objectWriter{cluster: c, namespaces: namespaces, last: map[string]uint64{}}
	for _, namespace := range namespaces {
		c.Namespace(t, namespace)
		o := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: scribbled, Namespace: namespace}}
		if _, err := c.Admin.CoreV1().ConfigMaps(namespace).Create(t.Context(), o, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// run writes until ctx ends.
func (s *objectWriter) run(ctx context.Context, t *testing.T, every time.Duration) {
	ticks := time.NewTicker(every)
	defer ticks.Stop()
	for n := 0; ; n++ {
		for _, namespace := range s.namespaces {
			o := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: scribbled, Namespace: namespace},
				Data: map[string]string{"n": fmt.Sprint(n)}}
			written, err := s.cluster.Admin.CoreV1().ConfigMaps(namespace).Update(ctx, o, metav1.UpdateOptions{})
			if ctx.Err() != nil {
				return
			}
			if err != nil {
				t.Errorf("writing to %s: %v", namespace, err)
				return
			}
			s.mu.Lock()
			s.last[namespace] = exchange.Number(written.ResourceVersion)
			s.mu.Unlock()
		}
		select {
		case <-ctx.Done():
			return
		case <-ticks.C:
		}
	}
}

// lastIn is the resourceVersion of what was written last to a namespace.
func (s *objectWriter) lastIn(namespace string) uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last[namespace]
}
