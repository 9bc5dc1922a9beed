package discovery

import (
	"cmp"
	"context"
	"errors"
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
	"spillway/internal/object"
	"spillway/internal/upstream"
	"spillway/internal/upstream/transport"
)

// Resolution is what a name means, or why it means nothing: upstream does not know it, and Err says
// what may have been meant, or it can never be cached (see NotMirroredError).
type Resolution struct {
	Name     string
	Resource *object.Resource // nil with an Err
	Err      error
}

// Resolve finds the resources that args name, each `resource[.version][.group]` as kubectl takes
// it: plural, singular or short name. Those that mean the same are there once. An error
// says that upstream is away (upstream.IsAway), and nothing of any name.
func Resolve(ctx context.Context, c *upstream.Client, args []string) ([]Resolution, error) {
	found, err := readCatalog(ctx, c)
	if err != nil {
		return nil, err
	}
	var resolved []Resolution
	seen := map[schema.GroupVersionResource]bool{}
	for _, arg := range args {
		one := Resolution{Name: arg}
		gvr, err := found.lookUp(ctx, arg)
		if err == nil {
			if seen[gvr] {
				continue
			}
			seen[gvr] = true
			one.Resource, err = describe(ctx, c, gvr, found.entries[gvr], found.origins[gvr.GroupVersion()])
		}
		if upstream.IsAway(err) {
			return nil, err
		}
		one.Err = err
		resolved = append(resolved, one)
	}
	return resolved, nil
}

// UnresolvedError is one line that names everything wrong with names, nil if nothing is.
func UnresolvedError(resolved []Resolution) error {
	var wrong []string
	for _, one := range resolved {
		if one.Err != nil {
			wrong = append(wrong, transport.OneLine(one.Err))
		}
	}
	if len(wrong) == 0 {
		return nil
	}
	return errors.New(strings.Join(wrong, "; "))
}

// unknownResourceError says that upstream serves no resource of a name. Its kind of error is a 404.
type unknownResourceError struct{ text string }

func (e unknownResourceError) Error() string { return e.text }

// Status implements apierrors.APIStatus.
func (e unknownResourceError) Status() metav1.Status {
	return metav1.Status{Status: metav1.StatusFailure, Code: http.StatusNotFound, Reason: metav1.StatusReasonNotFound,
		Message: e.text}
}

// catalog is all that upstream serves, at one moment.
type catalog struct {
	mapper  meta.RESTMapperWithContext
	entries map[schema.GroupVersionResource]metav1.APIResource
	origins origins
}

// readCatalog reads upstream's discovery. A group whose server is gone is missing from it.
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
		entries: map[schema.GroupVersionResource]metav1.APIResource{},
		origins: origins,
	}
	for _, g := range groups {
		for version, resources := range g.VersionedResources {
			for _, r := range resources {
				if !strings.Contains(r.Name, "/") {
					found.entries[schema.GroupVersionResource{Group: g.Group.Name, Version: version, Resource: r.Name}] = r
				}
			}
		}
	}
	return found, nil
}

// lookUp finds what arg names.
func (c *catalog) lookUp(ctx context.Context, arg string) (schema.GroupVersionResource, error) {
	if strings.Contains(arg, "/") {
		return schema.GroupVersionResource{},
			fmt.Errorf("%q is a subresource, which is never mirrored: leave it out, it passes through", arg)
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
	_, ok := c.entries[gvr]
	return ok
}

// suggestNames lists up to three names that arg may have been meant to be, the nearest first.
func (c *catalog) suggestNames(arg string) []string {
	resource, _, _ := strings.Cut(arg, ".")
	allowed := 1 + len(resource)/4 // typing errors
	best := map[string]int{}
	for gvr, entry := range c.entries {
		name := gvr.GroupResource().String()
		distance := editdistance.Of(arg, name)
		for _, candidate := range append([]string{gvr.Resource, entry.SingularName}, entry.ShortNames...) {
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
