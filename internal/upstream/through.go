package upstream

import (
	"context"
	"errors"

	"spillway/internal/object"
)

// errNoBookmark says that upstream did not tell how far a watch was.
var errNoBookmark = errors.New("upstream did not say in time how far it is")

// Through asks how far upstream is, for a mirror of a resource that is complete through from. It holds everything that was acknowledged
// before the call once it is complete through last, after which nothing happened up to reached. A reached below from says that upstream
// is behind its own word: its history has been rewritten.
//
// It is a LIST of one item and, unless that finds the mirror at upstream's own version, a watch on the same connection of up to three
// seconds: the version alone proves nothing about what the mirror's watch has delivered (W-211, W-212).
func (c *Client) Through(ctx context.Context, r *object.Resource, from uint64) (last, reached uint64, err error) {
	rv, probe, err := c.NewProber(r).Begin(ctx)
	if err != nil {
		return 0, 0, err
	}
	defer probe.Close()
	if rv <= from {
		return from, rv, nil
	}
	progress, err := probe.Prove(ctx, from)
	if err != nil {
		return 0, 0, err
	}
	if reached = max(progress.Bookmark, progress.Last); reached < rv {
		return 0, 0, errNoBookmark
	}
	return max(progress.Last, from), reached, nil
}
