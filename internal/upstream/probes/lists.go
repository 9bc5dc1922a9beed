package probes

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"spillway/internal/object"
	"spillway/internal/upstream"
	"spillway/internal/upstream/wire"
)

const (
	// exactPageLimit is how many objects of an exact state are requested at a time.
	exactPageLimit = 500
	// trailerBytes bounds how much is read of a body after the end of its list.
	trailerBytes = 16 << 20
)

// State reads the version of a state that is not older than the call, and the versions of all
// objects in it, by key. It is a LIST of metadata without pages, which no balancer can split and
// which upstream answers from its watch cache. It may travel on any connection.
func (p *Prober) State(ctx context.Context) (rv uint64, versions map[string]uint64, err error) {
	p.count(func(s *ProbeStats) { s.States++ })
	rv, versions, err = p.readState(ctx)
	if err != nil && !errors.Is(ctx.Err(), context.Canceled) {
		p.count(func(s *ProbeStats) { s.Failures++ })
	}
	return rv, versions, err
}

func (p *Prober) readState(ctx context.Context) (uint64, map[string]uint64, error) {
	body, err := p.client.Get(ctx, p.request("list", metav1.ListOptions{}))
	if err != nil {
		return 0, nil, err
	}
	defer body.Close()
	versions := map[string]uint64{}
	page, err := readVersions(body, func(key string, rv uint64) { versions[key] = rv })
	if err == nil && page.Continue != "" {
		err = errors.New("a LIST without a limit has more pages")
	}
	if err != nil {
		return 0, nil, fmt.Errorf("state of %s: %w", p.resource, err)
	}
	rv, err := wire.ParseRV(page.ResourceVersion)
	return rv, versions, err
}

// ReadVersions calls onVersion for every object in the state at exactly rv, in upstream's order. It
// requests metadata, in pages. An error may come after some calls; a 410 says that upstream no
// longer has the state.
func (p *Prober) ReadVersions(ctx context.Context, rv uint64, onVersion func(key string, rv uint64)) error {
	o := metav1.ListOptions{
		ResourceVersion: strconv.FormatUint(rv, 10), ResourceVersionMatch: metav1.ResourceVersionMatchExact,
		Limit: exactPageLimit,
	}
	for {
		next, err := p.readVersionsPage(ctx, o, onVersion)
		if err != nil || next == "" {
			return err
		}
		o = metav1.ListOptions{Limit: exactPageLimit, Continue: next}
	}
}

func (p *Prober) readVersionsPage(ctx context.Context, o metav1.ListOptions, onVersion func(string, uint64)) (
	next string, err error) {
	r := p.exactPage(o)
	r.OnlyMetadata = true
	body, err := p.client.Get(ctx, r)
	if err != nil {
		return "", err
	}
	defer body.Close()
	page, err := readVersions(body, onVersion)
	if err != nil {
		return "", fmt.Errorf("versions of %s: %w", p.resource, err)
	}
	return page.Continue, nil
}

// readVersions calls onVersion for every object of a page, in upstream's order. The page may be
// long: metadata has up to 256 KiB of annotations.
func readVersions(body io.Reader, onVersion func(key string, rv uint64)) (metav1.ListMeta, error) {
	meta, err := wire.ReadItems(body, func(raw []byte) error {
		v, err := wire.ParseVersion(raw)
		if err == nil {
			onVersion(v.Key, v.RV)
		}
		return err
	})
	if err == nil { // to its end, so that the connection stays
		_, err = io.Copy(io.Discard, io.LimitReader(body, trailerBytes))
	}
	return meta, err
}

// ListFrom lists at most limit objects of the state at exactly rv, from a key on.
func (p *Prober) ListFrom(ctx context.Context, rv uint64, key string, limit int64) ([]*object.Object, error) {
	body, err := p.client.Get(ctx, p.exactPage(metav1.ListOptions{Limit: limit, Continue: continueAt(rv, key)}))
	if err != nil {
		return nil, err
	}
	return p.readObjects(body)
}

// continueAt is a continue token of a list over all namespaces that goes on with a key. Tokens hold
// no more than that, so that any server takes those of any other (W-80, W-81).
func continueAt(rv uint64, key string) string {
	text := fmt.Sprintf(`{"v":"meta.k8s.io/v1","rv":%d,"start":%q}`, rv, "/"+key)
	return base64.RawURLEncoding.EncodeToString([]byte(text))
}

// exactPage is the request for a page of an exact state.
func (p *Prober) exactPage(o metav1.ListOptions) upstream.GetRequest {
	r := upstream.GetRequestFor("list", p.resource, o)
	r.Purpose = checkPurpose
	return r
}

// ListObjects lists the resource as upstream shows it now, at a version that is not older than rv.
// It is for changes of objects' bytes without an event. Reflector.Relist would interrupt the watch
// for them, and leave a gap in history.
func (p *Prober) ListObjects(ctx context.Context, rv uint64) ([]*object.Object, error) {
	body, err := p.client.Get(ctx, upstream.GetRequestFor("list", p.resource, metav1.ListOptions{
		ResourceVersion: strconv.FormatUint(rv, 10), ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan,
	}))
	if err != nil {
		return nil, err
	}
	return p.readObjects(body)
}

// readObjects reads a list, and closes it.
func (p *Prober) readObjects(body io.ReadCloser) ([]*object.Object, error) {
	defer body.Close()
	list, err := wire.ReadList(p.resource, body)
	return list.Objects, err
}
