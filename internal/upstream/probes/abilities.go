package probes

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// abilityTimeout is how long a probe of abilities may take.
const abilityTimeout = 3 * time.Second

// abilitySelector selects no object, and lets upstream read one key of its storage at most.
const abilitySelector = "metadata.name=spillway,metadata.name!=spillway"

// ProbeAbilities finds out again what upstream can do, by a watch-list that costs it next to
// nothing. An ability that the answer neither shows nor excludes stays as it was.
func (p *Prober) ProbeAbilities(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, abilityTimeout)
	defer cancel()
	record := p.client.AbilityRecord()
	r := p.request("watch", metav1.ListOptions{
		AllowWatchBookmarks: true, SendInitialEvents: new(true), ResourceVersion: "0",
		ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan, FieldSelector: abilitySelector,
		TimeoutSeconds: new(int64(1)),
	})
	r.OnHead = record.ObserveWatchList
	body, err := p.client.Get(ctx, r)
	switch {
	case err == nil:
		_ = body.Close()
	case apierrors.IsInvalid(err):
		record.ObserveRefusal()
		return nil
	}
	return err
}
