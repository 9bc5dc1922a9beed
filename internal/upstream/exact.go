package upstream

import (
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"spillway/internal/object"
	"spillway/internal/upstream/wire"
)

// exactPage is how many objects of an exact state are requested at a time.
const exactPage = 500

// Versions tells the version of every object, by key and in upstream's order, in the state at
// exactly rv: in pages, as metadata. An error may come when some have been returned already; one
// that is a 410 says that the state is no longer known.
func (c *Client) Versions(ctx context.Context, r *object.Resource, rv uint64, told func(key string, rv uint64)) error {
	for o := exactly(rv, exactPage); ; {
		next, err := c.versionsPage(ctx, r, o, told)
		if err != nil || next == "" {
			return err
		}
		o = metav1.ListOptions{Limit: exactPage, Continue: next}
	}
}

// exactly is a list at a version.
func exactly(rv uint64, limit int64) metav1.ListOptions {
	return metav1.ListOptions{
		ResourceVersion: strconv.FormatUint(rv, 10), ResourceVersionMatch: metav1.ResourceVersionMatchExact, Limit: limit,
	}
}

func (c *Client) versionsPage(ctx context.Context, r *object.Resource, o metav1.ListOptions,
	told func(string, uint64)) (next string, err error) {
	body, err := c.exactPage(ctx, r, o, true)
	if err != nil {
		return "", err
	}
	defer body.Close()
	page, err := readVersionsPage(body, told)
	if err != nil {
		return "", fmt.Errorf("versions of %s: %w", r, err)
	}
	return page.Continue, nil
}

// readVersionsPage tells the version of every object of a page, by key and in upstream's order. The
// page may be long: metadata has up to 256 KiB of annotations.
func readVersionsPage(body io.Reader, told func(key string, rv uint64)) (metav1.ListMeta, error) {
	meta, err := wire.ReadItems(body, func(raw []byte) error {
		rv, key, _, err := wire.VersionOf(raw)
		if err == nil {
			told(key, rv)
		}
		return err
	})
	if err == nil { // to its end, so that the connection stays
		_, err = io.Copy(io.Discard, io.LimitReader(body, maxProbeBytes))
	}
	return meta, err
}

// From lists at most limit objects from a key on, as they are in the state at exactly rv.
func (c *Client) From(ctx context.Context, r *object.Resource, rv uint64, key string, limit int64) ([]*object.Object,
	error) {
	body, err := c.exactPage(ctx, r, metav1.ListOptions{Limit: limit, Continue: continueAt(rv, key)}, false)
	if err != nil {
		return nil, err
	}
	return objectsOf(r, body)
}

// continueAt is a continue token of a list over all namespaces that goes on with a key. Tokens name
// no more than that, so that any server takes those of any other (W-80, W-81).
func continueAt(rv uint64, key string) string {
	text := fmt.Sprintf(`{"v":"meta.k8s.io/v1","rv":%d,"start":%q}`, rv, "/"+key)
	return base64.RawURLEncoding.EncodeToString([]byte(text))
}

// exactPage asks for a page. These requests say "check" in their User-Agent.
func (c *Client) exactPage(ctx context.Context, r *object.Resource, o metav1.ListOptions, onlyMetadata bool) (
	io.ReadCloser, error) {
	q := GetRequestFor("list", r, o)
	q.OnlyMetadata, q.Purpose = onlyMetadata, "check"
	return c.Get(ctx, q)
}
