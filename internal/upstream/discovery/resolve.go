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
