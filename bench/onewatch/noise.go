package main

import (
	"context"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// noiseEvery is how often something else in the cluster changes.
const noiseEvery = 100 * time.Millisecond

// noise changes an object of another resource until ctx ends. It moves etcd's revision, so that the
// resource that is watched is behind it and has to be proven fresh: without it nothing would ever
// need a proof watch.
func noise(ctx context.Context, client kubernetes.Interface) error {
	maps := client.CoreV1().ConfigMaps(namespaces[0])
	made, err := maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "noise"}}, metav1.CreateOptions{})
	tick := time.NewTicker(noiseEvery)
	defer tick.Stop()
	for turn := 0; err == nil; turn++ {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
		made.Data = map[string]string{"turn": strconv.Itoa(turn)}
		made, err = maps.Update(ctx, made, metav1.UpdateOptions{})
	}
	if ctx.Err() != nil {
		return nil
	}
	return err
}
