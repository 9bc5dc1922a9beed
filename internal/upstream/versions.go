package upstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"spillway/internal/upstream/wire"
)

// errNoEnd says that a watch-list ended before it was complete.
var errNoEnd = errors.New("the watch-list ended before its initial events did")

// State asks for the version of every object, by key, in a state that is not older than the call,
// and for the state's own version: a watch-list as metadata (W-211h), or a LIST where upstream
// serves none. Neither can be split by a balancer: the pages of a LIST are of the state of its
// first one. Its connection is whichever comes.
func (p *Prober) State(ctx context.Context) (uint64, map[string]uint64, error) {
	p.states.Add(1)
	rv, versions, err := p.stateBy(ctx)
	if err != nil && !errors.Is(ctx.Err(), context.Canceled) {
		p.failed.Add(1)
	}
	return rv, versions, err
}

// stateBy chooses between the two. A watch-list that does not end its initial events is not tried
// again for listFallbackPeriod, as mirrors do: what stands between may drop bookmarks.
func (p *Prober) stateBy(ctx context.Context) (uint64, map[string]uint64, error) {
	until := p.lists.Load()
	if p.client.Abilities().WatchList != AbilityAbsent && (until == nil || time.Now().After(*until)) {
		rv, versions, err := p.state(ctx)
		switch {
		case errors.Is(err, errNoEnd), errors.Is(ctx.Err(), context.DeadlineExceeded):
			p.lists.Store(new(time.Now().Add(listFallbackPeriod)))
			return rv, versions, err
		case !apierrors.IsInvalid(err):
			return rv, versions, err
		}
		p.client.abilities.saw(Abilities{WatchList: AbilityAbsent})
	}
	return p.listed(ctx)
}

// listed is the state by a LIST. Its pages are so large that few resources have several.
func (p *Prober) listed(ctx context.Context) (uint64, map[string]uint64, error) {
	versions := map[string]uint64{}
	for o := (metav1.ListOptions{Limit: statePage}); ; {
		query, err := queryOf(o)
		if err != nil {
			return 0, nil, err
		}
		body, err := p.client.get(ctx, p.request("list", query, partialList))
		if err != nil {
			return 0, nil, err
		}
		page, err := readVersionsPage(body, func(key string, rv uint64) { versions[key] = rv })
		_ = body.Close()
		if err != nil {
			return 0, nil, fmt.Errorf("state of %s: %w", p.resource, err)
		}
		if page.Continue == "" {
			rv, err := parseRV(page.ResourceVersion)
			return rv, versions, err
		}
		o.Continue = page.Continue
	}
}

// statePage is how many objects of a state are listed at a time.
const statePage = 10_000

func (p *Prober) state(ctx context.Context) (uint64, map[string]uint64, error) {
	ctx, cancel := context.WithCancel(ctx) // nothing is wanted of the watch that follows
	defer cancel()
	query, err := queryOf(metav1.ListOptions{
		Watch: true, AllowWatchBookmarks: true, SendInitialEvents: new(true),
		ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan,
		TimeoutSeconds:       new(int64(proofSeconds)),
	})
	if err != nil {
		return 0, nil, err
	}
	body, err := p.client.get(ctx, p.request("watch", query, partialObject))
	if err != nil {
		return 0, nil, err
	}
	defer body.Close()
	return readVersions(wire.NewLines(body))
}

// readVersions reads initial events to their end.
func readVersions(in *wire.Lines) (uint64, map[string]uint64, error) {
	versions := map[string]uint64{}
	for {
		line, err := in.Next()
		if err == io.EOF {
			err = errNoEnd
		}
		if err != nil {
			return 0, nil, err
		}
		t, raw, err := split(line)
		if err != nil {
			return 0, nil, err
		}
		if t == watch.Error {
			return 0, nil, statusError(raw)
		}
		rv, key, end, err := versionOf(raw)
		switch {
		case err != nil:
			return 0, nil, err
		case t == watch.Bookmark && end:
			return rv, versions, nil
		case t == watch.Added, t == watch.Modified:
			versions[key] = rv
		case t == watch.Deleted:
			delete(versions, key)
		}
	}
}

// versionOf is an object's version and key, and whether it is the bookmark at the end of initial
// events.
func versionOf(raw []byte) (rv uint64, key string, end bool, err error) {
	var o struct {
		Metadata struct {
			Namespace       string            `json:"namespace"`
			Name            string            `json:"name"`
			ResourceVersion string            `json:"resourceVersion"`
			Annotations     map[string]string `json:"annotations"`
		} `json:"metadata"`
	}
	if err := json.Unmarshal(raw, &o); err != nil {
		return 0, "", false, fmt.Errorf("watch event: %w", err)
	}
	key = o.Metadata.Name
	if o.Metadata.Namespace != "" {
		key = o.Metadata.Namespace + "/" + key
	}
	rv, err = parseRV(o.Metadata.ResourceVersion)
	return rv, key, o.Metadata.Annotations[metav1.InitialEventsAnnotationKey] == "true", err
}
