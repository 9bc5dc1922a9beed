package discovery

import (
	"context"

	"spillway/internal/upstream"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
)

const apiServices = "/apis/apiregistration.k8s.io/v1/apiservices"

// origin is the server of a group and version, as its APIService says. The zero origin is
// "kube-apiserver, nothing more known".
//
// A resource is built in if kube-apiserver's own types serve it, which the bytes depend on (W-8,
// W-60). No single request answers that:
//
//   - An APIService with spec.service is another server: aggregated, never mirrored.
//   - kube-apiserver registers the group versions of its own types once, at its start, and those of
//     CRDs for as long as they exist. It labels the APIService accordingly: automanaged=onstart is
//     built in, automanaged=true is a CRD's. The group's name says nothing:
//     gateway.networking.k8s.io, snapshot.storage.k8s.io and others are CRDs.
//   - Without the label, or without the right to read APIServices, the types that client-go knows
//     are taken for built in, and the two groups that it does not know. Wrong only for a built-in
//     kind newer than our client-go.
type origin struct {
	service string // namespace/name of the server behind an aggregated API
	managed string // value of the label
}

// origins are those of all group versions with an APIService.
type origins map[schema.GroupVersion]origin

func isBuiltin(gvk schema.GroupVersionKind, o origin) bool {
	switch o.managed {
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

// apiService is the little that we read of one.
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
	o := origin{managed: s.Metadata.Labels["kube-aggregator.kubernetes.io/automanaged"]}
	if s.Spec.Service != nil {
		o.service = s.Spec.Service.Namespace + "/" + s.Spec.Service.Name
	}
	return o
}

// readOrigins reads all APIServices. If the proxy may not, or there is no aggregator, everything is
// taken for local.
func readOrigins(ctx context.Context, c *upstream.Client) (origins, error) {
	var list struct {
		Items []apiService `json:"items"`
	}
	if err := c.GetJSON(ctx, upstream.GetRequest{Verb: "list", Path: apiServices}, &list); err != nil {
		return nil, unlessHidden(ctx, c, err)
	}
	all := origins{}
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

// unlessHidden drops the errors that say no more than that there is nothing for us to see. An
// apiserver that has only begun forbids what it allows once it has read its rules.
func unlessHidden(ctx context.Context, c *upstream.Client, err error) error {
	if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) && !c.IsUnready(ctx) {
		return nil
	}
	return err
}
