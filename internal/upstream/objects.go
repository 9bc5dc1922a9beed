package upstream

import (
	"context"
	"io"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"spillway/internal/object"
	"spillway/internal/upstream/wire"
)

// Objects lists a resource as upstream shows it now, at a version that is not older than rv. It is
// for what changes the bytes of objects without an event, where Reflector.Relist would be a gap in
// history for nothing.
func (c *Client) Objects(ctx context.Context, r *object.Resource, rv uint64) ([]*object.Object, error) {
	body, err := c.Get(ctx, GetRequestFor("list", r, metav1.ListOptions{
		ResourceVersion: strconv.FormatUint(rv, 10), ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan,
	}))
	if err != nil {
		return nil, err
	}
	return objectsOf(r, body)
}

// objectsOf reads a list, and closes it.
func objectsOf(r *object.Resource, body io.ReadCloser) ([]*object.Object, error) {
	defer body.Close()
	list, err := wire.ReadList(r, body)
	return list.Objects, err
}
