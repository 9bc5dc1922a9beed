package discovery

import (
	"context"
	"errors"
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"spillway/internal/object"
	"spillway/internal/upstream"
	"spillway/internal/upstream/transport"
)

// Resolution is the resource that a name means, or an error. With a NotMirroredError, the name
// means something that can never be mirrored. With a 404 (apierrors.IsNotFound), the API server
// serves nothing of the name, and the text suggests others.
type Resolution struct {
	Name     string
	Resource *object.Resource // nil with an Err
	Err      error
}

// Resolve finds the resources that args name, each `resource[.version][.group]` as kubectl takes
// it: plural, singular or short name. Of several with one meaning, the result has the first. An
// error concerns the API server, not a name.
func Resolve(ctx context.Context, c *upstream.Client, args []string) ([]Resolution, error) {
	catalog, err := readCatalog(ctx, c)
	if err != nil {
		return nil, err
	}
	var resolved []Resolution
	seen := map[schema.GroupVersionResource]bool{}
	for _, arg := range args {
		resolution := Resolution{Name: arg}
		gvr, err := catalog.lookUp(ctx, arg)
		if err == nil {
			if seen[gvr] {
				continue
			}
			seen[gvr] = true
			resolution.Resource, err = catalog.resources[gvr].describe(ctx, c)
		}
		if upstream.IsUnavailable(err) {
			return nil, err
		}
		resolution.Err = err
		resolved = append(resolved, resolution)
	}
	return resolved, nil
}

// JoinErrors is one line with all errors of resolutions; nil if there are none.
func JoinErrors(resolved []Resolution) error {
	var texts []string
	for _, resolution := range resolved {
		if resolution.Err != nil {
			texts = append(texts, transport.OneLine(resolution.Err))
		}
	}
	if len(texts) == 0 {
		return nil
	}
	return errors.New(strings.Join(texts, "; "))
}

// MisspelledError is one line that names the names without a group that the API server does not
// serve; nil if there are none. Resources without a group come with the API server, so these names
// are typing mistakes. A resource of another group may be installed later.
func MisspelledError(resolved []Resolution) error {
	var texts []string
	for _, resolution := range resolved {
		var unknown unknownResourceError
		if errors.As(resolution.Err, &unknown) && !unknown.isPartial && groupOf(resolution.Name) == "" {
			texts = append(texts, unknown.text)
		}
	}
	if len(texts) == 0 {
		return nil
	}
	return errors.New(strings.Join(texts, "; ") +
		"; a resource that is installed later must be named with its group, as in widgets.example.com")
}

// bareVersion matches versions of APIs, and no groups.
var bareVersion = regexp.MustCompile(`^v[0-9]+((alpha|beta)[0-9]+)?$`)

// parseName reads resource[.version][.group]. Unlike kubectl, it takes v1 in pods.v1 for a version,
// because no group has such a name. The first result is nil if there is no version for certain.
func parseName(name string) (*schema.GroupVersionResource, schema.GroupResource) {
	versioned, plain := schema.ParseResourceArg(strings.ToLower(name))
	if versioned == nil && bareVersion.MatchString(plain.Group) {
		return &schema.GroupVersionResource{Version: plain.Group, Resource: plain.Resource},
			schema.GroupResource{Resource: plain.Resource + "." + plain.Group}
	}
	return versioned, plain
}

// groupOf is the group in resource[.version][.group].
func groupOf(name string) string {
	_, rest, _ := strings.Cut(name, ".")
	if version, group, _ := strings.Cut(rest, "."); bareVersion.MatchString(version) {
		return group
	}
	return rest
}
