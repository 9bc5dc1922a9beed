package discovery

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"spillway/internal/object"
	"spillway/internal/upstream"
)

// subresourceReason is why no subresource is mirrored.
const subresourceReason = "subresources are no collections"

// NotMirroredError says why a resource is never mirrored (design D2). It stays so for as long as
// the resource is what it is.
type NotMirroredError struct {
	GVR    schema.GroupVersionResource
	Reason string
}

// Error is one line that says what to do.
func (e *NotMirroredError) Error() string {
	return fmt.Sprintf("%s cannot be mirrored: %s; leave it out, it passes through", e.GVR.GroupResource(), e.Reason)
}

// Discover sorts everything that the API server serves, in every version, into what can be mirrored
// and what passes through, with the reason. Secrets pass through unless they are named explicitly
// (design D12).
func Discover(ctx context.Context, c *upstream.Client) (mirrored map[schema.GroupVersionResource]*object.Resource,
	passThrough map[schema.GroupVersionResource]string, err error) {
	catalog, err := readCatalog(ctx, c)
	if err != nil {
		return nil, nil, err
	}
	definitions, err := readDefinitions(ctx, c)
	if err != nil {
		return nil, nil, err
	}
	mirrored, passThrough = map[schema.GroupVersionResource]*object.Resource{}, map[schema.GroupVersionResource]string{}
	for gvr, r := range catalog.resources {
		switch reason := r.refusal(); {
		case reason != "":
			passThrough[gvr] = reason
		case gvr.Group == "" && gvr.Resource == "secrets":
			passThrough[gvr] = "secrets are mirrored only if they are named"
		default:
			mirrored[gvr] = r.resource(definitions[gvr.GroupResource()])
		}
	}
	return mirrored, passThrough, nil
}

// ReadResource describes one resource by two or three small requests, as for a CRD that has just
// appeared. The error is a *NotMirroredError if it is served but never mirrored, and a 404
// (apierrors.IsNotFound) if it is not served.
func ReadResource(ctx context.Context, c *upstream.Client, gvr schema.GroupVersionResource) (*object.Resource, error) {
	list, err := c.Discovery().ServerResourcesForGroupVersionWithContext(ctx, gvr.GroupVersion().String())
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(list.APIResources, func(r metav1.APIResource) bool { return r.Name == gvr.Resource })
	if i < 0 {
		return nil, apierrors.NewNotFound(gvr.GroupResource(), "")
	}
	origin, err := readOrigin(ctx, c, gvr.GroupVersion())
	if err != nil {
		return nil, err
	}
	return served{gvr: gvr, entry: list.APIResources[i], origin: origin}.describe(ctx, c)
}

// served is one resource that the API server serves: its discovery entry, and the server behind it.
type served struct {
	gvr    schema.GroupVersionResource
	entry  metav1.APIResource
	origin origin
}

// describe makes the resource, with its definition if that may be read, or refuses it.
func (s served) describe(ctx context.Context, c *upstream.Client) (*object.Resource, error) {
	if reason := s.refusal(); reason != "" {
		return nil, &NotMirroredError{GVR: s.gvr, Reason: reason}
	}
	if s.isBuiltin() {
		return s.resource(nil), nil
	}
	d, err := readDefinition(ctx, c, s.gvr.GroupResource())
	if err != nil {
		return nil, err
	}
	return s.resource(d), nil
}

// resource makes the resource; d is the definition of a custom one, nil if it is not known.
func (s served) resource(d *definition) *object.Resource {
	isBuiltin := s.isBuiltin()
	var fields []object.Field
	if d != nil && !isBuiltin {
		fields = d.fields(s.gvr.Version)
	}
	r := object.NewResource(s.gvr, s.entry.Kind, s.entry.Namespaced, isBuiltin, fields...)
	r.StorageHash = s.entry.StorageVersionHash
	if d != nil && !isBuiltin {
		r.Definition = d.Epoch
		r.ListKind = cmp.Or(d.Status.AcceptedNames.ListKind, r.ListKind)
	}
	return r
}

func (s served) isBuiltin() bool {
	return s.origin.isBuiltin(s.gvr.GroupVersion().WithKind(s.entry.Kind))
}

// refusal is why a resource can never be mirrored, "" if it can.
func (s served) refusal() string {
	resource, verbs := s.gvr.Resource, s.entry.Verbs
	switch {
	case strings.Contains(resource, "/"):
		return subresourceReason
	case resource == "events" && (s.gvr.Group == "" || s.gvr.Group == "events.k8s.io"):
		return "upstream has no watch cache for events, and their versions are not unique"
	case !object.HasPaths(s.gvr.GroupResource()):
		return fmt.Sprintf("upstream reads %q in a path as a part of paths, not as this resource", resource)
	case !slices.Contains(verbs, "list") || !slices.Contains(verbs, "watch"):
		return fmt.Sprintf("it cannot be listed and watched, its verbs are %s", strings.Join(verbs, ", "))
	case s.origin.service != "":
		return "it is an aggregated API, served by " + s.origin.service
	}
	return ""
}
