package probes

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// abilityTimeout is how long a probe of abilities may take.
const abilityTimeout = 3 * time.Second

// abilitySelector selects no object. In one namespace, or for a resource without namespaces, it
// names one key, and upstream looks that up in its watch cache. Across namespaces a name is no key:
// upstream would look at each object.
const abilitySelector = "metadata.name=spillway,metadata.name!=spillway"

// ProbeAbilities finds out again what upstream can do, by a watch-list that costs it next to
// nothing. An error is no evidence: there was no answer, or one that neither shows nor excludes an
// ability. Then all stay as they were.
func (p *Prober) ProbeAbilities(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, abilityTimeout)
	defer cancel()
	record := p.client.AbilityRecord()
	r := p.request("watch", metav1.ListOptions{
		AllowWatchBookmarks: true, SendInitialEvents: new(true), ResourceVersion: "0",
		ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan, FieldSelector: abilitySelector,
		TimeoutSeconds: new(int64(1)),
	})
	if p.resource.Namespaced {
		r.Path = pathIn(p.resource, metav1.NamespaceDefault)
	}
	r.OnHead = record.ObserveWatchList
	body, err := p.client.Get(ctx, r)
	if apierrors.IsInvalid(err) { // which is an answer: upstream serves no watch-lists
		record.ObserveRefusal()
		return nil
	}
	if err != nil {
		return err
	}
	_ = body.Close()
	return nil
}
