package discovery

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/restmapper"

	"spillway/internal/editdistance"
	"spillway/internal/upstream"
)

// catalog is all that the API server serves, without subresources.
type catalog struct {
	isPartial bool // the resources of some groups, of kube-apiserver or of CRDs, could not be read
	mapper    meta.RESTMapperWithContext
	resources map[schema.GroupVersionResource]served
}

// readCatalog reads the APIServices, then the documents of discovery: a change in between may be in
// only one of the two. A group is missing while its server does not answer.
func readCatalog(ctx context.Context, c *upstream.Client) (*catalog, error) {
	origins, err := readOrigins(ctx, c)
	if err != nil {
		return nil, err
	}
	cached := memory.NewMemCacheClientWithContext(c.Discovery())
	groups, err := restmapper.GetAPIGroupResourcesWithContext(ctx, cached)
	if apierrors.IsForbidden(err) {
		return nil, fmt.Errorf("discovery of %s: %w; give Spillway the rights of the cluster role system:discovery",
			c.Base().Host, err)
	}
	if err != nil {
		return nil, fmt.Errorf("discovery of %s: %w", c.Base().Host, err)
	}
	dropWarning := func(string) {} // says that a short name has several meanings; the first one counts
	all := &catalog{
		mapper: restmapper.NewShortcutExpanderWithContext(
			restmapper.NewDiscoveryRESTMapperWithContext(groups), cached, dropWarning),
		resources: map[schema.GroupVersionResource]served{},
	}
	for _, g := range groups {
		for _, v := range g.Group.Versions {
			gv := schema.GroupVersion{Group: g.Group.Name, Version: v.Version}
			if _, isRead := g.VersionedResources[v.Version]; !isRead && origins[gv].service == "" {
				all.isPartial = true
			}
		}
		for version, resources := range g.VersionedResources {
			gv := schema.GroupVersion{Group: g.Group.Name, Version: version}
			for _, r := range resources {
				if !strings.Contains(r.Name, "/") {
					gvr := gv.WithResource(r.Name)
					all.resources[gvr] = served{gvr: gvr, entry: r, origin: origins[gv]}
				}
			}
		}
	}
	return all, nil
}

// lookUp finds what arg names, in kubectl's order: resource.version.group, then resource.group. An
// error of the mapper means only that it finds no resource, because it reads what is in memory. It
// also finds kinds of lists (podlists), which no server serves.
func (c *catalog) lookUp(ctx context.Context, arg string) (schema.GroupVersionResource, error) {
	if strings.Contains(arg, "/") {
		gvr := schema.GroupVersionResource{Resource: arg}
		return gvr, &NotMirroredError{GVR: gvr, Reason: subresourceReason, IsPermanent: true}
	}
	versioned, plain := parseName(arg)
	if versioned != nil {
		if gvr, err := c.mapper.ResourceForWithContext(ctx, *versioned); err == nil && c.serves(gvr) {
			return gvr, nil
		}
	}
	gvr, err := c.mapper.ResourceForWithContext(ctx, plain.WithVersion(""))
	if err == nil && c.serves(gvr) {
		return gvr, nil
	}
	message := fmt.Sprintf("the API server serves no resource %q", arg)
	if near := c.suggestNames(strings.ToLower(arg)); len(near) > 0 {
		message += "; did you mean " + strings.Join(near, ", ") + "?"
	}
	return schema.GroupVersionResource{}, unknownResourceError{message, c.isPartial}
}

func (c *catalog) serves(gvr schema.GroupVersionResource) bool {
	_, ok := c.resources[gvr]
	return ok
}

// suggestNames lists up to three names that arg may have been meant to be, the nearest first.
func (c *catalog) suggestNames(arg string) []string {
	resource, _, _ := strings.Cut(arg, ".")
	maxDistance := 1 + len(resource)/4 // typing mistakes
	best := map[string]int{}
	for gvr, r := range c.resources {
		name := gvr.GroupResource().String()
		distance := editdistance.Of(arg, name)
		for _, candidate := range append([]string{gvr.Resource, r.entry.SingularName}, r.entry.ShortNames...) {
			if candidate != "" {
				distance = min(distance, editdistance.Of(resource, candidate))
			}
		}
		if distance <= maxDistance {
			best[name] = distance
		}
	}
	names := slices.SortedFunc(maps.Keys(best), func(a, b string) int {
		return cmp.Or(best[a]-best[b], strings.Compare(a, b))
	})
	return names[:min(len(names), 3)]
}

// unknownResourceError says that the API server serves no resource of a name. It counts as a 404.
type unknownResourceError struct {
	text      string
	isPartial bool // the API server did not say all that it serves
}

func (e unknownResourceError) Error() string { return e.text }

// Status implements apierrors.APIStatus.
func (e unknownResourceError) Status() metav1.Status {
	return metav1.Status{Status: metav1.StatusFailure, Code: http.StatusNotFound, Reason: metav1.StatusReasonNotFound,
		Message: e.text}
}
