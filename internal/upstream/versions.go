package upstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"spillway/internal/upstream/wire"
)

// errNoEnd says that a watch-list ended before it was complete.
var errNoEnd = errors.New("the watch-list ended before its initial events did")

// State asks for the version of every object, by key, in a state that is not older than the call,
// and for the state's own version: a watch-list as metadata (W-211h). It is a single request, which
// no balancer can split; its connection is whichever comes.
func (p *Prober) State(ctx context.Context) (uint64, map[string]uint64, error) {
	p.states.Add(1)
	rv, versions, err := p.state(ctx)
	if err != nil && !errors.Is(ctx.Err(), context.Canceled) {
		p.failed.Add(1)
	}
	return rv, versions, err
}

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
