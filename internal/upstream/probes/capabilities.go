package probes

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// capabilityTimeout is how long a probe of capabilities may take.
const capabilityTimeout = 3 * time.Second

// capabilitySelector selects no object. In one namespace, or for a resource without namespaces, it
// names one key, and upstream looks that up in its watch cache. Across namespaces a name is no key:
// upstream would look at each object.
const capabilitySelector = "metadata.name=spillway,metadata.name!=spillway"

// ProbeCapabilities finds out again what upstream can do, by a watch-list that costs it next to
// nothing. An error is no evidence: there was no answer, or one that neither shows nor excludes a
// capability. Then all stay as they were.
func (p *Prober) ProbeCapabilities(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, capabilityTimeout)
	defer cancel()
	record := p.client.CapabilityRecord()
	r := p.request("watch", metav1.ListOptions{
		AllowWatchBookmarks: true, SendInitialEvents: new(true), ResourceVersion: "0",
		ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan, FieldSelector: capabilitySelector,
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
