package discovery

import (
	"context"
	"errors"
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
