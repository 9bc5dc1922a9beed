package discovery

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/restmapper"

	"spillway/internal/editdistance"
	"spillway/internal/upstream"
)

// catalog is all that upstream serves, at one moment, without subresources.
type catalog struct {
	mapper meta.RESTMapperWithContext
	served map[schema.GroupVersionResource]served
}

// readCatalog reads upstream's discovery. A group is missing from it while its server does not
// answer.
func readCatalog(ctx context.Context, c *upstream.Client) (*catalog, error) {
	origins, err := readOrigins(ctx, c)
	if err != nil {
		return nil, err
	}
	cached := memory.NewMemCacheClientWithContext(c.Discovery())
	groups, err := restmapper.GetAPIGroupResourcesWithContext(ctx, cached)
	if err != nil {
		return nil, fmt.Errorf("discovery of %s: %w", c.Base().Host, err)
	}
	found := &catalog{
		mapper: restmapper.NewShortcutExpanderWithContext(
			restmapper.NewDiscoveryRESTMapperWithContext(groups), cached, func(string) {}),
		served: map[schema.GroupVersionResource]served{},
	}
	for _, g := range groups {
		for version, resources := range g.VersionedResources {
			gv := schema.GroupVersion{Group: g.Group.Name, Version: version}
			for _, r := range resources {
				if !strings.Contains(r.Name, "/") {
					gvr := gv.WithResource(r.Name)
					found.served[gvr] = served{gvr, r, origins[gv]}
				}
			}
		}
	}
	return found, nil
}

// lookUp finds what arg names.
func (c *catalog) lookUp(ctx context.Context, arg string) (schema.GroupVersionResource, error) {
	if strings.Contains(arg, "/") {
		gvr := schema.GroupVersionResource{Resource: arg}
		return gvr, &NotMirroredError{GVR: gvr, Reason: subresourceReason}
	}
	full, group := schema.ParseResourceArg(strings.ToLower(arg))
	if full != nil {
		if gvr, err := c.mapper.ResourceForWithContext(ctx, *full); err == nil && c.serves(gvr) {
			return gvr, nil
		}
	}
	gvr, err := c.mapper.ResourceForWithContext(ctx, group.WithVersion(""))
	if err == nil && c.serves(gvr) {
		return gvr, nil
	}
	message := fmt.Sprintf("upstream serves no resource %q", arg)
	if near := c.suggestNames(strings.ToLower(arg)); len(near) > 0 {
		message += "; did you mean " + strings.Join(near, ", ") + "?"
	}
	return schema.GroupVersionResource{}, unknownResourceError{message}
}

func (c *catalog) serves(gvr schema.GroupVersionResource) bool {
	_, ok := c.served[gvr]
	return ok
}

// suggestNames lists up to three names that arg may have been meant to be, the nearest first.
func (c *catalog) suggestNames(arg string) []string {
	resource, _, _ := strings.Cut(arg, ".")
	allowed := 1 + len(resource)/4 // typing mistakes
	best := map[string]int{}
	for gvr, one := range c.served {
		name := gvr.GroupResource().String()
		distance := editdistance.Of(arg, name)
		for _, candidate := range append([]string{gvr.Resource, one.entry.SingularName}, one.entry.ShortNames...) {
			if candidate != "" {
				distance = min(distance, editdistance.Of(resource, candidate))
			}
		}
		if distance <= allowed {
			best[name] = distance
		}
	}
	names := slices.SortedFunc(maps.Keys(best), func(a, b string) int {
		return cmp.Or(best[a]-best[b], strings.Compare(a, b))
	})
	return names[:min(len(names), 3)]
}

// unknownResourceError says that upstream serves no resource of a name. It counts as a 404.
type unknownResourceError struct{ text string }

func (e unknownResourceError) Error() string { return e.text }

// Status implements apierrors.APIStatus.
func (e unknownResourceError) Status() metav1.Status {
	return metav1.Status{Status: metav1.StatusFailure, Code: http.StatusNotFound, Reason: metav1.StatusReasonNotFound,
		Message: e.text}
}
