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

// kubelet writes to the API server, through the proxy, what the kubelet of nodeName would write: it
// sets the status of pending pods to running, and deletes terminating pods. It runs no containers.
type kubelet struct {
	client           kubernetes.Interface
	pods             cache.SharedIndexInformer
	queue            workqueue.TypedRateLimitingInterface[cache.ObjectName]
	started, removed atomic.Int64

	mu         sync.Mutex
	firstError error // guarded by mu
}

// kubeletWorkers is how many pods the kubelet handles at the same time.
const kubeletWorkers = 4

// startKubelet returns once the kubelet knows its pods. It ends with ctx.
func startKubelet(ctx context.Context, client kubernetes.Interface, players *sync.WaitGroup) (*kubelet, error) {
	onThisNode := func(o *metav1.ListOptions) {
		o.FieldSelector = fields.OneTermEqualSelector("spec.nodeName", nodeName).String()
	}
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithTweakListOptions(onThisNode))
	k := &kubelet{
		client: client, pods: factory.Core().V1().Pods().Informer(),
		queue: workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[cache.ObjectName]()),
	}
	enqueue := func(o any) { k.queue.Add(cache.MetaObjectToName(o.(*corev1.Pod))) }
	_, err := k.pods.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: enqueue, UpdateFunc: func(_, o any) { enqueue(o) }, // a deleted pod has no work left
	})
	if err != nil {
		return nil, err
	}
	players.Go(func() { k.pods.RunWithContext(ctx) })
	if !cache.WaitForCacheSync(ctx.Done(), k.pods.HasSynced) {
		return nil, context.Cause(ctx)
	}
	for range kubeletWorkers {
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
			k.recordError(err)
			k.queue.AddRateLimited(name)
		}
		k.queue.Done(name)
	}
}

// recordError keeps the first error. A conflict is none: another client has written the pod
// meanwhile, and the next try reads what it wrote.
func (k *kubelet) recordError(err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.firstError == nil && !apierrors.IsConflict(err) {
		k.firstError = err
	}
}

// firstErr is the first error that recordError kept.
func (k *kubelet) firstErr() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.firstError
}

// handle writes what a pod needs in its present state.
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

// running is the pod as a kubelet reports it once it runs. Its address need not be its own, because
// nothing connects to it.
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
