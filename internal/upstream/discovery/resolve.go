package discovery

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"regexp"
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

// Resolution is the resource that a name means, or an error: upstream does not know it, and Err
// suggests others, or it can never be mirrored (see NotMirroredError).
type Resolution struct {
	Name     string
	Resource *object.Resource // nil with an Err
	Err      error
}

// Resolve finds the resources that args name, each `resource[.version][.group]` as kubectl takes
// it: plural, singular or short name. Of several with one meaning, the result has the first. An
// error says that upstream is unavailable (upstream.IsUnavailable), and nothing of any name.
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
			one.Resource, err = found.served[gvr].describe(ctx, c)
		}
		if upstream.IsUnavailable(err) {
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

// MisspelledError is one line that names the names without a group that upstream does not serve,
// nil if there are none. Resources without a group come with the API server, so these names are
// typing mistakes. A resource of another group may be installed later.
func MisspelledError(resolved []Resolution) error {
	var wrong []string
	for _, one := range resolved {
		var unknown unknownResourceError
		if errors.As(one.Err, &unknown) && !unknown.isPartial && groupOf(one.Name) == "" {
			wrong = append(wrong, unknown.text)
		}
	}
	if len(wrong) == 0 {
		return nil
	}
	return errors.New(strings.Join(wrong, "; ") +
		"; a resource that is installed later must be named with its group, as in widgets.example.com")
}

// bareVersion is what a version of an API looks like, other than a group.
var bareVersion = regexp.MustCompile(`^v[0-9]+((alpha|beta)[0-9]+)?$`)

// parseName reads resource[.version][.group]. Unlike kubectl, it takes v1 in pods.v1 for a version,
// because no group has such a name. The first result is nil if there is no version for certain.
func parseName(name string) (*schema.GroupVersionResource, schema.GroupResource) {
	full, plain := schema.ParseResourceArg(strings.ToLower(name))
	if full == nil && bareVersion.MatchString(plain.Group) {
		return &schema.GroupVersionResource{Version: plain.Group, Resource: plain.Resource},
			schema.GroupResource{Resource: plain.Resource + "." + plain.Group}
	}
	return full, plain
}

// groupOf is the group in resource[.version][.group].
func groupOf(name string) string {
	_, rest, _ := strings.Cut(name, ".")
	if version, group, _ := strings.Cut(rest, "."); bareVersion.MatchString(version) {
		return group
	}
	return rest
}

// unknownResourceError says that the API server serves no resource of a name. It counts as a 404.
type unknownResourceError struct {
	text      string
	isPartial bool // upstream did not say all that it serves
}

func (e unknownResourceError) Error() string { return e.text }

// Status implements apierrors.APIStatus.
func (e unknownResourceError) Status() metav1.Status {
	return metav1.Status{Status: metav1.StatusFailure, Code: http.StatusNotFound, Reason: metav1.StatusReasonNotFound,
		Message: e.text}
}

// catalog is all that upstream serves, at one moment, without subresources.
type catalog struct {
	isPartial bool // the resources of some groups, of kube-apiserver or of CRDs, could not be read
	mapper    meta.RESTMapperWithContext
	served    map[schema.GroupVersionResource]served
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
		for _, v := range g.Group.Versions {
			gv := schema.GroupVersion{Group: g.Group.Name, Version: v.Version}
			if _, isRead := g.VersionedResources[v.Version]; !isRead && origins[gv].service == "" {
				found.isPartial = true
			}
		}
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
		return schema.GroupVersionResource{},
			fmt.Errorf("%q is a subresource, which is never mirrored: leave it out, it passes through", arg)
	}
	full, group := parseName(arg)
	if full != nil {
		if gvr, err := c.mapper.ResourceForWithContext(ctx, *full); err == nil && c.serves(gvr) {
			return gvr, nil
		}
	}
	gvr, err := c.mapper.ResourceForWithContext(ctx, group.WithVersion(""))
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
