// Package codec makes the other encodings of objects, lists, bookmarks and errors from the JSON
// that upstream sent: protobuf, PartialObjectMetadata, and gzip of any.
//
// Invariant: what is made says what the JSON says, all of it. Whatever is not certain to (a kind
// without a type here, a member that its type does not know, an apiserver newer than the types) is
// refused, and upstream answers (design D1, D9).
package codec

import (
	"sync/atomic"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"spillway/internal/object"
)

// Codec knows which encodings of one resource are made here. The zero pointer knows only the JSON
// that upstream sent.
//
// It decides before an answer begins; the functions of this package then do the work, and may still
// fail. Such an encoding is withdrawn: that watch has ended, and the next request passes through.
type Codec struct {
	resource  *object.Resource
	release   *SchemaVersion
	typed     bool // its kind has a protobuf type
	annotated bool // upstream shows annotations that are not the object's own
	withdrawn [3][3]atomic.Bool
}

// New makes the codec of a resource. What depends on Go types is offered while release says that
// they suffice.
func New(r *object.Resource, release *SchemaVersion) *Codec {
	_, err := newMessage(r)
	return &Codec{resource: r, release: release, typed: r.Builtin && err == nil, annotated: annotated[r.GVR]}
}

// annotated are the resources whose version cannot say all that upstream knows of an object, so
// that it puts the rest into annotations. As PartialObjectMetadata upstream shows the object
// without these (W-45), and they look like a user's.
var annotated = map[schema.GroupVersionResource]bool{
	// deprecated.daemonset.template.generation
	{Group: "apps", Version: "v1", Resource: "daemonsets"}: true,
	// deprecated.deployment.rollback.revision
	{Group: "apps", Version: "v1", Resource: "deployments"}:                     true,
	{Group: "autoscaling", Version: "v1", Resource: "horizontalpodautoscalers"}: true, // autoscaling.alpha.kubernetes.io/…
}

// Offers reports whether an encoding is made here. Only failures are written in YAML.
func (c *Codec) Offers(f object.Format, v object.View) bool {
	if f == object.JSON && v == object.Whole {
		return true
	}
	if c == nil || f == object.YAML || c.withdrawn[f][v].Load() || c.annotated && v != object.Whole {
		return false
	}
	switch {
	case f == object.Protobuf && v == object.Whole:
		return c.typed && c.release.Suffices()
	case f == object.Protobuf, v != object.Whole && !c.resource.Builtin:
		return c.release.Suffices() // decoded into ObjectMeta
	}
	return true
}

// Withdraw says that an encoding could not be made of some object, and reports whether that is
// news.
func (c *Codec) Withdraw(f object.Format, v object.View) bool {
	return c != nil && !c.withdrawn[f][v].Swap(true)
}
