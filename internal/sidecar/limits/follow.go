// Package limits sizes sidecars by what namespaces allow their pods. It follows the LimitRanges and
// ResourceQuotas of a cluster.
//
// Invariants: Follower.Of returns what was current a moment ago, or an error if the API server is
// unreachable or forbids the watch. A pod with a sidecar of Rules.Size keeps each rule of its
// namespace that it keeps without.
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
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
)

// staleTimeout is how long rules are used after the first failed request. It is long enough for a
// watch that ended to begin again.
const staleTimeout = 10 * time.Second

// Follower knows the rules of all namespaces.
type Follower struct{ ranges, quotas *followed }

// New makes a Follower of the cluster of a config, over the connections of a client.
func New(config *rest.Config, over *http.Client, log *zap.Logger) (*Follower, error) {
	config = rest.CopyConfig(config)
	config.APIPath, config.GroupVersion, config.NegotiatedSerializer = "/api", &corev1.SchemeGroupVersion,
		scheme.Codecs.WithoutConversion()
	config.ContentType, config.AcceptContentTypes = runtime.ContentTypeProtobuf,
		runtime.ContentTypeProtobuf+","+runtime.ContentTypeJSON
	client, err := rest.RESTClientForConfigAndClient(config, over)
	if err != nil {
		return nil, err
	}
	return &Follower{
		newFollowed("limitranges", &corev1.LimitRange{}, &corev1.LimitRangeList{}, client, log),
		newFollowed("resourcequotas", &corev1.ResourceQuota{}, &corev1.ResourceQuotaList{}, client, log),
	}, nil
}

// Run follows the cluster until ctx ends.
func (f *Follower) Run(ctx context.Context) {
	var both sync.WaitGroup
	for _, all := range []*followed{f.ranges, f.quotas} {
		both.Go(func() { all.RunWithContext(ctx) })
	}
	both.Wait()
}

// Wait returns when all rules are known, or with an error if ctx ends first.
func (f *Follower) Wait(ctx context.Context) error {
	if cache.WaitForCacheSync(ctx.Done(), f.ranges.HasSynced, f.quotas.HasSynced) {
		return nil
	}
	return errors.Join(f.ranges.check(), f.quotas.check())
}

// Len is how many objects are held.
func (f *Follower) Len() int {
	return len(f.ranges.GetIndexer().ListKeys()) + len(f.quotas.GetIndexer().ListKeys())
}

// Of returns the rules of a namespace.
func (f *Follower) Of(namespace string) (*Rules, error) {
	ranges, err := listOf[*corev1.LimitRange](f.ranges, namespace)
	if err != nil {
		return nil, err
	}
	quotas, err := listOf[*corev1.ResourceQuota](f.quotas, namespace)
	return &Rules{ranges, quotas}, err
}

func listOf[T any](f *followed, namespace string) ([]T, error) {
	if err := f.check(); err != nil {
		return nil, err
	}
	found, err := f.GetIndexer().ByIndex(cache.NamespaceIndex, namespace)
	if err != nil {
		return nil, err
	}
	all := make([]T, len(found))
	for i, object := range found {
		all[i] = object.(T)
	}
	return all, nil
}

// followed is all objects of one kind.
type followed struct {
	cache.SharedIndexInformer
	resource string
	clock    clock.PassiveClock
	log      *zap.Logger

	mu     sync.Mutex
	failed error     // of the last request; nil: it succeeded
	since  time.Time // when requests began to fail
}

func newFollowed(resource string, object, list runtime.Object, client rest.Interface, log *zap.Logger) *followed {
	f := &followed{resource: resource, clock: clock.RealClock{}, log: log}
	source := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			into := list.DeepCopyObject()
			err := client.Get().Resource(resource).VersionedParams(&o, scheme.ParameterCodec).Do(ctx).Into(into)
			f.noteAttempt(err)
			return into, err
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.Watch = true
			w, err := client.Get().Resource(resource).VersionedParams(&o, scheme.ParameterCodec).Watch(ctx)
			f.noteAttempt(err)
			return w, err
		},
	}
	f.SharedIndexInformer = cache.NewSharedIndexInformer(source, object, 0,
		cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	_ = f.SetTransform(strip) // it has not been started
	return f
}

// strip drops fields that Rules do not read, because they may be large.
func strip(object any) (any, error) {
	o, err := meta.Accessor(object)
	if err != nil {
		return object, nil //nolint:nilerr // a tombstone, which is no object
	}
	o.SetManagedFields(nil)
	o.SetAnnotations(nil)
	o.SetLabels(nil)
	o.SetOwnerReferences(nil)
	o.SetFinalizers(nil)
	return object, nil
}

// noteAttempt notes the outcome of a request. 410 is no failure: the informer lists again.
func (f *followed) noteAttempt(err error) {
	if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) || errors.Is(err, context.Canceled) {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if err != nil && f.failed == nil {
		f.since = f.clock.Now()
		f.log.Warn("what namespaces allow cannot be read: pods get no sidecars if that goes on",
			zap.String("resource", f.resource), zap.Error(err))
	}
	f.failed = err
}

// check returns why the objects are not known.
func (f *followed) check() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.failed != nil && (!f.HasSynced() || f.clock.Since(f.since) > staleTimeout):
		return fmt.Errorf("%s cannot be read: %w", f.resource, f.failed)
	case !f.HasSynced():
		return fmt.Errorf("%s are not read yet", f.resource)
	}
	return nil
}
