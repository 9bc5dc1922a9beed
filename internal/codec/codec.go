// Package codec makes the other encodings of objects, lists, bookmarks and errors from the JSON
// that upstream sent: protobuf, PartialObjectMetadata, and gzip of any.
//
// Invariant: an encoding says all that the JSON says. If that is not certain (a kind without a type
// here, a member that its type does not know, an API server newer than the types), the encoding is
// refused, and upstream answers (design D1, D9).
package codec

import (
	"sync/atomic"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"spillway/internal/object"
)

// Codec knows which encodings of one resource are made here. A nil Codec offers only the JSON that
// upstream sent.
//
// It decides before an answer begins; the functions of this package then do the work, and may still
// fail. Such an encoding is withdrawn: that watch has ended, and the next request passes through.
type Codec struct {
	resource       *object.Resource
	schema         *SchemaVersion
	hasProtobuf    bool              // its kind has a protobuf type
	hasAnnotations bool              // upstream shows annotations that are not the object's own
	withdrawn      [3][3]atomic.Bool // by format and view
}

// New makes the codec of a resource. Encodings that depend on Go types are offered while these
// suffice.
func New(r *object.Resource, schema *SchemaVersion) *Codec {
	_, err := newMessage(r)
	return &Codec{
		resource: r, schema: schema, hasProtobuf: r.Builtin && err == nil, hasAnnotations: upstreamAnnotates[r.GVR],
	}
}

// upstreamAnnotates has the resources whose version cannot say all that upstream knows of an
// object, so that it puts the rest into annotations. As PartialObjectMetadata upstream shows the
// object without these (W-45), and they look like a user's.
var upstreamAnnotates = map[schema.GroupVersionResource]bool{
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
	if c == nil || f == object.YAML || c.withdrawn[f][v].Load() || c.hasAnnotations && v != object.Whole {
		return false
	}
	switch {
	case f == object.Protobuf && v == object.Whole:
		return c.hasProtobuf && c.schema.Suffices()
	case f == object.Protobuf, v != object.Whole && !c.resource.Builtin:
		return c.schema.Suffices() // decoded into ObjectMeta
	}
	return true
}

// Withdraw offers an encoding no more, because it could not be made of some object. It reports
// whether it was offered until now.
func (c *Codec) Withdraw(f object.Format, v object.View) bool {
	return c != nil && !c.withdrawn[f][v].Swap(true)
}
