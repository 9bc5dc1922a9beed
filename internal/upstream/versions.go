package upstream

import (
	"context"
	"errors"
	"fmt"

	"spillway/internal/upstream/wire"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// State asks for the version of every object, by key, in a state that is not older than the call,
// and for the state's own version: a LIST of metadata. It is one request without pages, which no
// balancer can split and which upstream answers from its watch cache. Its connection is whichever
// comes.
func (p *Prober) State(ctx context.Context) (uint64, map[string]uint64, error) {
	p.states.Add(1)
	rv, versions, err := p.state(ctx)
	if err != nil && !errors.Is(ctx.Err(), context.Canceled) {
		p.failed.Add(1)
	}
	return rv, versions, err
}

func (p *Prober) state(ctx context.Context) (uint64, map[string]uint64, error) {
	body, err := p.client.Get(ctx, p.request("list", metav1.ListOptions{}))
	if err != nil {
		return 0, nil, err
	}
	defer body.Close()
	versions := map[string]uint64{}
	page, err := readVersionsPage(body, func(key string, rv uint64) { versions[key] = rv })
	if err == nil && page.Continue != "" {
		err = errors.New("a LIST without a limit has more pages")
	}
	if err != nil {
		return 0, nil, fmt.Errorf("state of %s: %w", p.resource, err)
	}
	rv, err := wire.ParseRV(page.ResourceVersion)
	return rv, versions, err
}
