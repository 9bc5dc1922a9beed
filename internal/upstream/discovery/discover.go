package discovery

import (
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

// NotMirroredError says why a resource is never mirrored (design D2). It stays so for as long as
// the resource is what it is.
type NotMirroredError struct {
	GVR    schema.GroupVersionResource
	Reason string
}

// Error is one line that says what to do.
func (r *NotMirroredError) Error() string {
	return fmt.Sprintf("%s cannot be mirrored: %s; leave it out, it passes through", r.GVR.GroupResource(), r.Reason)
}

// Discover sorts everything that upstream serves, every version of it, into what can be mirrored
// and what passes through, and why. Secrets pass through unless they are named explicitly (design
// D12).
func Discover(ctx context.Context, c *upstream.Client) (map[schema.GroupVersionResource]*object.Resource,
	map[schema.GroupVersionResource]string, error) {
	found, err := readCatalog(ctx, c)
	if err != nil {
		return nil, nil, err
	}
	definitions, err := readDefinitions(ctx, c)
	if err != nil {
		return nil, nil, err
	}
	cached := map[schema.GroupVersionResource]*object.Resource{}
	passThrough := map[schema.GroupVersionResource]string{}
	for gvr, entry := range found.entries {
		origin := found.origins[gvr.GroupVersion()]
		switch reason := refusal(gvr, entry, origin); {
		case reason != "":
			passThrough[gvr] = reason
		case gvr.Group == "" && gvr.Resource == "secrets":
			passThrough[gvr] = "secrets are mirrored only if they are named"
		default:
			cached[gvr] = resourceOf(gvr, entry, origin, definitions[gvr.GroupResource()])
		}
	}
	return cached, passThrough, nil
}

// ReadResource describes one resource with two or three small requests, which is how a CRD that
// just appeared is met. The error is a *NotMirroredError if it is served but never mirrored, and a
// 404 (apierrors.IsNotFound) if it is not served.
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
	return describe(ctx, c, gvr, list.APIResources[i], origin)
}

// describe makes the resource of a discovery entry, or refuses it.
func describe(ctx context.Context, c *upstream.Client, gvr schema.GroupVersionResource, entry metav1.APIResource,
	o origin) (*object.Resource, error) {
	if reason := refusal(gvr, entry, o); reason != "" {
		return nil, &NotMirroredError{GVR: gvr, Reason: reason}
	}
	var d *definition
	if !isBuiltin(gvr.GroupVersion().WithKind(entry.Kind), o) {
		var err error
		if d, err = readDefinition(ctx, c, gvr.GroupResource()); err != nil {
			return nil, err
		}
	}
	return resourceOf(gvr, entry, o, d), nil
}

// resourceOf is the resource of a discovery entry; d is the definition of a custom one, nil if it
// is not known.
func resourceOf(gvr schema.GroupVersionResource, entry metav1.APIResource, o origin, d *definition) *object.Resource {
	var r *object.Resource
	if isBuiltin(gvr.GroupVersion().WithKind(entry.Kind), o) {
		r = object.NewResource(gvr, entry.Kind, entry.Namespaced, true)
	} else {
		r = d.resource(gvr, entry)
	}
	r.StorageHash = entry.StorageVersionHash
	return r
}

// refusal is why a resource can never be cached, "" if it can.
func refusal(gvr schema.GroupVersionResource, entry metav1.APIResource, o origin) string {
	switch {
	case strings.Contains(gvr.Resource, "/"):
		return "subresources are no collections"
	case gvr.Resource == "events" && (gvr.Group == "" || gvr.Group == "events.k8s.io"):
		return "upstream has no watch cache for events, and their versions are not unique"
	case !object.HasPaths(gvr.GroupResource()):
		return fmt.Sprintf("upstream reads %q in a path as a part of paths, not as this resource", gvr.Resource)
	case !slices.Contains(entry.Verbs, "list") || !slices.Contains(entry.Verbs, "watch"):
		return fmt.Sprintf("it cannot be listed and watched, its verbs are %s", strings.Join(entry.Verbs, ", "))
	case o.service != "":
		return "it is an aggregated API, served by " + o.service
	}
	return ""
}
