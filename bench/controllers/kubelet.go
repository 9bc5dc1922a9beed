package main

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
)

// kubelet does, through the proxy, what a kubelet writes to the API server: its pods run, and
// terminating ones are gone.
type kubelet struct {
	client           kubernetes.Interface
	pods             cache.SharedIndexInformer
	queue            workqueue.TypedRateLimitingInterface[cache.ObjectName]
	started, removed atomic.Int64

	mu     sync.Mutex
	failed error
}

// startKubelet returns once the kubelet knows its pods. It ends with ctx.
func startKubelet(ctx context.Context, client kubernetes.Interface, players *sync.WaitGroup) (*kubelet, error) {
	mine := func(o *metav1.ListOptions) {
		o.FieldSelector = fields.OneTermEqualSelector("spec.nodeName", nodeName).String()
	}
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithTweakListOptions(mine))
	k := &kubelet{
		client: client, pods: factory.Core().V1().Pods().Informer(),
		queue: workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[cache.ObjectName]()),
	}
	add := func(o any) {
		if name, err := cache.ObjectToName(o); err == nil { // a tombstone has no work left
			k.queue.Add(name)
		}
	}
	_, err := k.pods.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: add, UpdateFunc: func(_, o any) { add(o) }})
	if err != nil {
		return nil, err
	}
	players.Go(func() { k.pods.RunWithContext(ctx) })
	if !cache.WaitForCacheSync(ctx.Done(), k.pods.HasSynced) {
		return nil, context.Cause(ctx)
	}
	for range 4 {
		players.Go(func() { k.work(ctx) })
	}
	context.AfterFunc(ctx, k.queue.ShutDown)
	return k, nil
}

func (k *kubelet) work(ctx context.Context) {
	for {
		name, shutdown := k.queue.Get()
		if shutdown {
			return
		}
		err := k.handle(ctx, name)
		switch {
		case err == nil:
			k.queue.Forget(name)
		case ctx.Err() == nil:
			k.note(err)
			k.queue.AddRateLimited(name)
		}
		k.queue.Done(name)
	}
}

// note keeps the first error that is not the ordinary one of a writer that was overtaken.
func (k *kubelet) note(err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.failed == nil && !apierrors.IsConflict(err) {
		k.failed = err
	}
}

func (k *kubelet) problem() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.failed
}

func (k *kubelet) handle(ctx context.Context, name cache.ObjectName) error {
	o, exists, err := k.pods.GetStore().GetByKey(name.String())
	if err != nil || !exists {
		return err
	}
	pod := o.(*corev1.Pod)
	pods := k.client.CoreV1().Pods(pod.Namespace)
	switch {
	case pod.DeletionTimestamp != nil:
		err = pods.Delete(ctx, pod.Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64(0)),
			Preconditions: metav1.NewUIDPreconditions(string(pod.UID))})
		if err == nil {
			k.removed.Add(1)
		}
	case pod.Status.Phase == corev1.PodPending:
		_, err = pods.UpdateStatus(ctx, running(pod), metav1.UpdateOptions{})
		if err == nil {
			k.started.Add(1)
		}
	}
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("pod %s: %w", name, err)
	}
	return nil
}

// running is the pod, started.
func running(pod *corev1.Pod) *corev1.Pod {
	pod = pod.DeepCopy()
	now := metav1.NewTime(time.Now())
	pod.Status.Phase, pod.Status.StartTime = corev1.PodRunning, &now
	pod.Status.PodIP, pod.Status.PodIPs = "10.0.0.1", []corev1.PodIP{{IP: "10.0.0.1"}}
	for _, t := range []corev1.PodConditionType{corev1.PodReadyToStartContainers, corev1.PodInitialized,
		corev1.ContainersReady, corev1.PodReady} {
		pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{Type: t, Status: corev1.ConditionTrue,
			LastTransitionTime: now})
	}
	return pod
}
