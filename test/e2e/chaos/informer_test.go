package chaos

import (
	"context"
	"fmt"
	"maps"
	"strconv"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// informer is client-go's, and what its handlers received.
type informer struct {
	cache.SharedIndexInformer
	resource schema.GroupVersionResource

	// Guarded by mu.
	mu    sync.Mutex
	told  map[string]version // by key and resourceVersion
	wrong []violation
}

// violation is something that must not happen, unless it is excused at that time.
type violation struct {
	at   time.Time
	text string
}

// newInformer makes an informer of whole objects, or of their metadata.
func newInformer(config *rest.Config, r schema.GroupVersionResource, metadataAlone bool) (*informer, error) {
	i := &informer{resource: r, told: map[string]version{}}
	if metadataAlone {
		c, err := metadata.NewForConfig(config)
		if err != nil {
			return nil, err
		}
		i.SharedIndexInformer = metadatainformer.NewFilteredMetadataInformer(c, r, "", 0, cache.Indexers{}, nil).Informer()
	} else {
		c, err := dynamic.NewForConfig(config)
		if err != nil {
			return nil, err
		}
		i.SharedIndexInformer = dynamicinformer.NewFilteredDynamicInformer(c, r, "", 0, cache.Indexers{}, nil).Informer()
	}
	_, err := i.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(o any) { i.saw(nil, o) }, UpdateFunc: i.saw,
	})
	return i, err
}

func read(o any) (string, version) {
	m, err := meta.Accessor(o)
	if err != nil {
		return "", version{}
	}
	rv, _ := strconv.ParseUint(m.GetResourceVersion(), 10, 64) // one that is none is never right
	return m.GetNamespace() + "/" + m.GetName(), version{
		rv: rv, uid: string(m.GetUID()), mark: m.GetAnnotations()[markAnnotation], team: m.GetLabels()[teamLabel],
	}
}

// saw is a handler.
func (i *informer) saw(before, now any) {
	key, is := read(now)
	i.mu.Lock()
	defer i.mu.Unlock()
	i.told[fmt.Sprintf("%s %d", key, is.rv)] = is
	if before == nil {
		return
	}
	if _, was := read(before); is.rv < was.rv {
		i.wrong = append(i.wrong, violation{time.Now(), fmt.Sprintf("%s goes from %+v back to %+v", key, was, is)})
	}
}

// state is what the informer holds.
func (i *informer) state() map[string]version {
	state := map[string]version{}
	for _, o := range i.GetStore().List() {
		key, is := read(o)
		state[key] = is
	}
	return state
}

// judge says what was wrong with what the handlers received.
func (i *informer) judge(truth []*timeline, excused *allowances) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, w := range i.wrong {
		if !excused.allow(rewrite, w.at) {
			return fmt.Errorf("an informer of %s: %s", i.resource.Resource, w.text)
		}
	}
	happened := map[version]bool{}
	for _, t := range truth {
		for _, versions := range t.objects[i.resource.Resource] {
			for _, v := range versions {
				happened[v] = true
			}
		}
	}
	for key, v := range maps.All(i.told) {
		if !happened[v] {
			return fmt.Errorf("an informer of %s was told of %s %+v, which never was", i.resource.Resource, key, v)
		}
	}
	return nil
}

func (i *informer) run(ctx context.Context) { i.RunWithContext(ctx) }
