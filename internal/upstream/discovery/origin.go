package discovery

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"

	"spillway/internal/upstream"
)

const apiServices = "/apis/apiregistration.k8s.io/v1/apiservices"

// origin is the server of a group and version, as its APIService says. The zero origin is
// kube-apiserver, of which nothing more is known.
type origin struct {
	service     string // namespace/name of the server behind an aggregated API
	automanaged string // value of the label
}

// isBuiltin reports whether kube-apiserver's own types serve a kind, which the bytes depend on
// (W-8, W-60). No single request answers that:
//
//   - kube-apiserver registers the group versions of its own types once, at its start, and those of
//     CRDs for as long as they exist. It labels the APIService accordingly: automanaged=onstart is
//     built in, automanaged=true is a CRD's. The group's name says nothing:
//     gateway.networking.k8s.io, snapshot.storage.k8s.io and others are CRDs.
//   - Without the label, or without the right to read APIServices, the types that client-go knows
//     count as built in, and so do the two groups whose types it does not have. That is wrong only
//     for a built-in kind newer than this client-go.
func (o origin) isBuiltin(gvk schema.GroupVersionKind) bool {
	switch o.automanaged {
	case "onstart":
		return true
	case "true":
		return false
	}
	switch gvk.Group {
	case "apiextensions.k8s.io", "apiregistration.k8s.io":
		return true
	}
	return scheme.Scheme.Recognizes(gvk)
}

// apiService is the part of an APIService that is read.
type apiService struct {
	Metadata struct {
		Labels map[string]string `json:"labels"`
	} `json:"metadata"`
	Spec struct {
		Group   string `json:"group"`
		Version string `json:"version"`
		Service *struct {
			Namespace string `json:"namespace"`
			Name      string `json:"name"`
		} `json:"service"`
	} `json:"spec"`
}

func (s *apiService) origin() origin {
	o := origin{automanaged: s.Metadata.Labels["kube-aggregator.kubernetes.io/automanaged"]}
	if s.Spec.Service != nil {
		o.service = s.Spec.Service.Namespace + "/" + s.Spec.Service.Name
	}
	return o
}

// readOrigins reads all APIServices. If the proxy may not, or there is no aggregator, all origins
// are zero.
func readOrigins(ctx context.Context, c *upstream.Client) (map[schema.GroupVersion]origin, error) {
	var list struct {
		Items []apiService `json:"items"`
	}
	if err := c.GetJSON(ctx, upstream.GetRequest{Verb: "list", Path: apiServices}, &list); err != nil {
		return nil, unlessHidden(ctx, c, err)
	}
	all := map[schema.GroupVersion]origin{}
	for _, s := range list.Items {
		all[schema.GroupVersion{Group: s.Spec.Group, Version: s.Spec.Version}] = s.origin()
	}
	return all, nil
}

// readOrigin reads one APIService, which is named after its group and version.
func readOrigin(ctx context.Context, c *upstream.Client, gv schema.GroupVersion) (origin, error) {
	var s apiService
	path := apiServices + "/" + gv.Version + "." + gv.Group
	if err := c.GetJSON(ctx, upstream.GetRequest{Verb: "get", Path: path}, &s); err != nil {
		return origin{}, unlessHidden(ctx, c, err)
	}
	return s.origin(), nil
}

// unlessHidden returns nil for an error that means that the proxy may not see the object: a 404, or
// a 403. The 403 of an API server that is not ready remains an error: it forbids everything until
// it has read its rules.
func unlessHidden(ctx context.Context, c *upstream.Client, err error) error {
	if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) && !c.IsUnready(ctx) {
		return nil
	}
	return err
}
