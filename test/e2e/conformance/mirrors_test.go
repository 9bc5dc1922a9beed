package conformance

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	typed "k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"

	"spillway/test/framework/exchange"
	"spillway/test/framework/process"
)

func loadConfig(path string) (*rest.Config, error) { return clientcmd.BuildConfigFromFlags("", path) }

// replica is what an informer's handlers received, kept by hand: a deletion that no handler
// received stays in here.
type replica struct {
	name     string
	gvr      schema.GroupVersionResource
	informer cache.SharedIndexInformer

	mu       sync.Mutex
	versions map[string]string // by key
	wrong    error
}

// informersUntilEqual runs informers of every kind through the proxy. Once there are no more writes
// they must get to the API server's state.
func informersUntilEqual() error {
	ctx, cancel := context.WithTimeout(context.Background(), process.Patience)
	defer cancel()
	proxied, err := restOf(proxiedVariable)
	if err != nil {
		return err
	}
	direct, err := restOf(directVariable)
	if err != nil {
		return err
	}
	truth, err := dynamic.NewForConfig(direct)
	if err != nil {
		return err
	}
	replicas, err := newReplicas(proxied)
	if err != nil {
		return err
	}
	for _, r := range replicas {
		go r.informer.Run(ctx.Done())
	}
	for _, r := range replicas {
		if !cache.WaitForCacheSync(ctx.Done(), r.informer.HasSynced) {
			return fmt.Errorf("%s: has not synced", r.name)
		}
	}
	fmt.Fprintln(os.Stderr, synced)
	if _, err := io.Copy(io.Discard, os.Stdin); err != nil { // it ends when there are no more writes
		return err
	}
	for _, r := range replicas {
		if err := r.untilEqual(ctx, truth); err != nil {
			return err
		}
	}
	return nil
}

// newReplicas makes informers: typed in JSON and in protobuf, dynamic, and of metadata alone.
func newReplicas(config *rest.Config) ([]*replica, error) {
	var all []*replica
	add := func(kind string, gvr schema.GroupVersionResource, i cache.SharedIndexInformer) error {
		r := &replica{name: kind + " " + gvr.Resource, gvr: gvr, informer: i, versions: map[string]string{}}
		all = append(all, r)
		_, err := i.AddEventHandler(r)
		return err
	}
	binary := rest.CopyConfig(config)
	binary.ContentType, binary.AcceptContentTypes = protobufType, protobufType+","+jsonType
	core := func(resource string) schema.GroupVersionResource {
		return schema.GroupVersionResource{Version: "v1", Resource: resource}
	}
	apps := schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}
	var errs []error
	for kind, c := range map[string]*rest.Config{"json": config, "protobuf": binary} {
		client, err := kubernetes.NewForConfig(c)
		if err != nil {
			return nil, err
		}
		factory := typed.NewSharedInformerFactory(client, 0)
		for _, gvr := range []schema.GroupVersionResource{
			core("pods"), core("configmaps"), core("secrets"), core("services"), core("namespaces"), core("nodes"), apps,
		} {
			i, err := factory.ForResource(gvr)
			if err != nil {
				return nil, err
			}
			errs = append(errs, add(kind, gvr, i.Informer()))
		}
	}
	objects, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	unstructured := dynamicinformer.NewDynamicSharedInformerFactory(objects, 0)
	metas, err := metadata.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	partial := metadatainformer.NewSharedInformerFactory(metas, 0)
	for _, gvr := range []schema.GroupVersionResource{widgets, core("configmaps")} {
		errs = append(errs, add("dynamic", gvr, unstructured.ForResource(gvr).Informer()),
			add("metadata", gvr, partial.ForResource(gvr).Informer()))
	}
	return all, errors.Join(errs...)
}

// OnAdd implements cache.ResourceEventHandler.
func (r *replica) OnAdd(o any, _ bool) { r.saw(o, "added") }

// OnUpdate implements cache.ResourceEventHandler.
func (r *replica) OnUpdate(_, o any) { r.saw(o, "updated") }

// OnDelete implements cache.ResourceEventHandler.
func (r *replica) OnDelete(o any) {
	key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(o)
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil {
		r.wrong = err
	}
	delete(r.versions, key)
}

// saw notes a version. For one object they never go back.
func (r *replica) saw(o any, how string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	accessor, err := meta.Accessor(o)
	if err != nil {
		r.wrong = err
		return
	}
	key := cache.MetaObjectToName(accessor).String()
	if old := r.versions[key]; exchange.Number(old) > exchange.Number(accessor.GetResourceVersion()) {
		r.wrong = fmt.Errorf("%s %s at %s after %s", key, how, accessor.GetResourceVersion(), old)
	}
	r.versions[key] = accessor.GetResourceVersion()
}

// untilEqual waits until the informer's store and what its handlers received are what an API server
// lists.
func (r *replica) untilEqual(ctx context.Context, truth dynamic.Interface) error {
	for {
		list, err := truth.Resource(r.gvr).List(ctx, metav1.ListOptions{})
		if err == nil {
			want := map[string]string{}
			for _, o := range list.Items {
				want[cache.MetaObjectToName(&o).String()] = o.GetResourceVersion()
			}
			if err = r.differs(want); err == nil {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s: %w", r.name, err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func (r *replica) differs(want map[string]string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.wrong != nil {
		return r.wrong
	}
	if err := sameVersions(want, r.versions); err != nil {
		return fmt.Errorf("handlers: %w", err)
	}
	store := map[string]string{}
	for _, o := range r.informer.GetStore().List() {
		accessor, err := meta.Accessor(o.(runtime.Object))
		if err != nil {
			return err
		}
		store[cache.MetaObjectToName(accessor).String()] = accessor.GetResourceVersion()
	}
	if err := sameVersions(want, store); err != nil {
		return fmt.Errorf("store: %w", err)
	}
	return nil
}

func sameVersions(want, got map[string]string) error {
	for key, version := range want {
		if got[key] != version {
			return fmt.Errorf("%s is at %s upstream, at %q here", key, version, got[key])
		}
	}
	if len(want) != len(got) {
		return fmt.Errorf("%d objects upstream, %d here", len(want), len(got))
	}
	return nil
}
