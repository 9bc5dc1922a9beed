package upstream

import (
	"context"
	"net/url"
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"spillway/internal/object"
)

const (
	crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
	// crdPage bounds what is in memory at once: a definition may be a megabyte.
	crdPage = "50"
)

// definition is the little that we read of a CustomResourceDefinition.
type definition struct {
	Spec struct {
		Group string `json:"group"`
		Names struct {
			Plural string `json:"plural"`
		} `json:"names"`
		Versions []struct {
			Name             string `json:"name"`
			SelectableFields []struct {
				JSONPath string `json:"jsonPath"`
			} `json:"selectableFields"`
		} `json:"versions"`
	} `json:"spec"`
}

// plainPath is a selectable field's path without brackets or quotes, which are not worth reading: a field that is not known here is not
// selectable here, and its selector goes upstream.
var plainPath = regexp.MustCompile(`^(\.[A-Za-z_][A-Za-z0-9_-]*)+$`)

// fields are the selectable fields of each version that has any.
func (d *definition) fields() map[schema.GroupVersionResource][]object.Field {
	all := map[schema.GroupVersionResource][]object.Field{}
	for _, v := range d.Spec.Versions {
		gvr := schema.GroupVersionResource{Group: d.Spec.Group, Version: v.Name, Resource: d.Spec.Names.Plural}
		for _, f := range v.SelectableFields {
			if plainPath.MatchString(f.JSONPath) {
				label := f.JSONPath[1:]
				all[gvr] = append(all[gvr], object.Field{Label: label, Path: strings.Split(label, ".")})
			}
		}
	}
	return all
}

// selectable reads the selectable fields of one custom resource; none if the proxy may not read its definition.
func (c *Client) selectable(ctx context.Context, gvr schema.GroupVersionResource) ([]object.Field, error) {
	var d definition
	if err := c.getJSON(ctx, request{verb: "get", path: crds + "/" + gvr.GroupResource().String()}, &d); err != nil {
		return nil, unlessHidden(err)
	}
	return d.fields()[gvr], nil
}

// allSelectable reads those of all custom resources.
func (c *Client) allSelectable(ctx context.Context) (map[schema.GroupVersionResource][]object.Field, error) {
	all := map[schema.GroupVersionResource][]object.Field{}
	query := url.Values{"limit": {crdPage}}
	for {
		var page struct {
			Metadata struct {
				Continue string `json:"continue"`
			} `json:"metadata"`
			Items []definition `json:"items"`
		}
		if err := c.getJSON(ctx, request{verb: "list", path: crds, query: query}, &page); err != nil {
			return all, unlessHidden(err)
		}
		for _, d := range page.Items {
			for gvr, fields := range d.fields() {
				all[gvr] = fields
			}
		}
		if page.Metadata.Continue == "" {
			return all, nil
		}
		query.Set("continue", page.Metadata.Continue)
	}
}
