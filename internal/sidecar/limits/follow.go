// Package limits knows what namespaces allow their pods: it holds the LimitRanges and
// ResourceQuotas of a cluster, and follows them.
//
// The invariant: what Of answers was current a moment ago. While upstream is away, or does not
// allow the watch, Of is an error.
package limits

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
)

// grace is how long what is known counts after upstream has first failed: a watch that ends begins
// again within it.
const grace = 10 * time.Second

// Allowances are those of all namespaces.
type Allowances struct {
	ranges, quotas *kind
}

// New follows the cluster of a config, over the connections of a client, once Run is called.
func New(config *rest.Config, by *http.Client, log *zap.Logger) (*Allowances, error) {
	config = rest.CopyConfig(config)
	config.APIPath, config.GroupVersion, config.NegotiatedSerializer = "/api", &corev1.SchemeGroupVersion,
		scheme.Codecs.WithoutConversion()
	config.ContentType, config.AcceptContentTypes = runtime.ContentTypeProtobuf,
		runtime.ContentTypeProtobuf+","+runtime.ContentTypeJSON
	client, err := rest.RESTClientForConfigAndClient(config, by)
	if err != nil {
		return nil, err
	}
	return &Allowances{
		newKind("limitranges", &corev1.LimitRange{}, &corev1.LimitRangeList{}, client, clock.RealClock{}, log),
		newKind("resourcequotas", &corev1.ResourceQuota{}, &corev1.ResourceQuotaList{}, client, clock.RealClock{}, log),
	}, nil
}

// Run follows the cluster until ctx ends.
func (a *Allowances) Run(ctx context.Context) {
	var both sync.WaitGroup
	for _, k := range []*kind{a.ranges, a.quotas} {
		both.Go(func() { k.informer.RunWithContext(ctx) })
	}
	both.Wait()
}

// Wait returns when all is known, or with an error when ctx ends before.
func (a *Allowances) Wait(ctx context.Context) error {
	if cache.WaitForCacheSync(ctx.Done(), a.ranges.informer.HasSynced, a.quotas.informer.HasSynced) {
		return nil
	}
	return errors.Join(a.ranges.known(), a.quotas.known())
}

// Len is how many objects are held.
func (a *Allowances) Len() int {
	return len(a.ranges.informer.GetIndexer().ListKeys()) + len(a.quotas.informer.GetIndexer().ListKeys())
}

// Of is what a namespace allows.
func (a *Allowances) Of(namespace string) ([]*corev1.LimitRange, []*corev1.ResourceQuota, error) {
	ranges, err := listed[*corev1.LimitRange](a.ranges, namespace)
	if err != nil {
		return nil, nil, err
	}
	quotas, err := listed[*corev1.ResourceQuota](a.quotas, namespace)
	return ranges, quotas, err
}

func listed[T any](k *kind, namespace string) ([]T, error) {
	if err := k.known(); err != nil {
		return nil, err
	}
	found, err := k.informer.GetIndexer().ByIndex(cache.NamespaceIndex, namespace)
	if err != nil {
		return nil, err
	}
	all := make([]T, len(found))
	for i, object := range found {
		all[i] = object.(T)
	}
	return all, nil
}

// kind is one of the two.
type kind struct {
	resource string
	informer cache.SharedIndexInformer
	clock    clock.PassiveClock
	log      *zap.Logger

	mu     sync.Mutex
	failed error // of the last attempt to read it
	since  time.Time
}

func newKind(resource string, object, list runtime.Object, client rest.Interface, clock clock.PassiveClock,
	log *zap.Logger) *kind {
	k := &kind{resource: resource, clock: clock, log: log}
	source := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			into := list.DeepCopyObject()
			err := client.Get().Resource(resource).VersionedParams(&o, scheme.ParameterCodec).Do(ctx).Into(into)
			k.tried(err)
			return into, err
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.Watch = true
			w, err := client.Get().Resource(resource).VersionedParams(&o, scheme.ParameterCodec).Watch(ctx)
			k.tried(err)
			return w, err
		},
	}
	k.informer = cache.NewSharedIndexInformer(source, object, 0,
		cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	_ = k.informer.SetTransform(bare) // it has not been started
	return k
}

// bare keeps of an object only what Of reads. The rest may be large.
func bare(object any) (any, error) {
	if o, err := metav1Object(object); err == nil {
		o.SetManagedFields(nil)
		o.SetAnnotations(nil)
		o.SetLabels(nil)
		o.SetOwnerReferences(nil)
		o.SetFinalizers(nil)
	}
	return object, nil
}

func metav1Object(object any) (metav1.Object, error) {
	o, ok := object.(metav1.ObjectMetaAccessor)
	if !ok {
		return nil, errors.New("no object")
	}
	return o.GetObjectMeta(), nil
}

// tried remembers what became of an attempt. 410 is part of following.
func (k *kind) tried(err error) {
	if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) || errors.Is(err, context.Canceled) {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if err != nil && k.failed == nil {
		k.since = k.clock.Now()
		k.log.Warn("what namespaces allow cannot be read: pods get no sidecars if that goes on",
			zap.String("resource", k.resource), zap.Error(err))
	}
	k.failed = err
}

// known says why it is not known what there is.
func (k *kind) known() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case k.failed != nil && (!k.informer.HasSynced() || k.clock.Since(k.since) > grace):
		return fmt.Errorf("%s cannot be read: %w", k.resource, k.failed)
	case !k.informer.HasSynced():
		return fmt.Errorf("%s are not read yet", k.resource)
	}
	return nil
}
