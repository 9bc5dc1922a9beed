package discovery

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"regexp"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"spillway/internal/object"
	"spillway/internal/upstream"
)

const (
	customResourceDefinitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
	// crdPage bounds what is in memory at once: a definition may be a megabyte.
	crdPage = 50
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
	}
	Status struct {
		AcceptedNames struct {
			ListKind string `json:"listKind"`
		} `json:"acceptedNames"`
		Conditions []struct {
			Type   string `json:"type"`
			Status string `json:"status"`
		} `json:"conditions"`
	}
	// Epoch names all of the definition that upstream's answers are made from: as long as it is the
	// same, upstream does not begin anew either. It is not the generation, which deletion raises
	// while objects are still served.
	Epoch string
}

// UnmarshalJSON reads a definition and finds its epoch.
func (d *definition) UnmarshalJSON(raw []byte) error {
	var parts struct {
		Metadata struct {
			UID string `json:"uid"`
		} `json:"metadata"`
		Spec   json.RawMessage `json:"spec"`
		Status struct {
			AcceptedNames json.RawMessage `json:"acceptedNames"`
		} `json:"status"`
	}
	var whole struct {
		Spec   any `json:"spec"`
		Status any `json:"status"`
	}
	whole.Spec, whole.Status = &d.Spec, &d.Status
	if err := errors.Join(json.Unmarshal(raw, &parts), json.Unmarshal(raw, &whole)); err != nil {
		return err
	}
	sum := sha256.New()
	for _, part := range [][]byte{[]byte(parts.Metadata.UID), parts.Spec, parts.Status.AcceptedNames} {
		sum.Write(part)
		sum.Write([]byte{0})
	}
	d.Epoch = hex.EncodeToString(sum.Sum(nil)[:16])
	return nil
}

// isEstablished reports that upstream serves what is defined.
func (d *definition) isEstablished() bool {
	for _, c := range d.Status.Conditions {
		if c.Type == "Established" {
			return c.Status == "True"
		}
	}
	return false
}

// plainPath is a selectable field's path without brackets or quotes, which are not worth reading: a
// field that is not known here is not selectable here, and its selector goes upstream.
var plainPath = regexp.MustCompile(`^(\.[A-Za-z_][A-Za-z0-9_-]*)+$`)

// fields are the selectable fields of a version.
func (d *definition) fields(version string) []object.Field {
	var fields []object.Field
	for _, v := range d.Spec.Versions {
		if v.Name != version {
			continue
		}
		for _, f := range v.SelectableFields {
			if plainPath.MatchString(f.JSONPath) {
				label := f.JSONPath[1:]
				fields = append(fields, object.Field{Label: label, Path: strings.Split(label, ".")})
			}
		}
	}
	return fields
}

// resource makes the custom resource of a discovery entry; d is nil if the proxy may not read the
// definition.
func (d *definition) resource(gvr schema.GroupVersionResource, entry metav1.APIResource) *object.Resource {
	if d == nil {
		return object.NewResource(gvr, entry.Kind, entry.Namespaced, false)
	}
	r := object.NewResource(gvr, entry.Kind, entry.Namespaced, false, d.fields(gvr.Version)...)
	r.Definition = d.Epoch
	if kind := d.Status.AcceptedNames.ListKind; kind != "" {
		r.ListKind = kind
	}
	return r
}

// readDefinition reads the definition of one custom resource; nil if the proxy may not.
func readDefinition(ctx context.Context, c *upstream.Client, gr schema.GroupResource) (*definition, error) {
	d, path := new(definition), customResourceDefinitions+"/"+gr.String()
	if err := c.GetJSON(ctx, upstream.GetRequest{Verb: "get", Path: path}, d); err != nil {
		return nil, unlessHidden(ctx, c, err)
	}
	return d, nil
}

// readDefinitions reads all of them.
func readDefinitions(ctx context.Context, c *upstream.Client) (map[schema.GroupResource]*definition, error) {
	all := map[schema.GroupResource]*definition{}
	r := upstream.GetRequest{Verb: "list", Path: customResourceDefinitions, Options: metav1.ListOptions{Limit: crdPage}}
	for {
		var page struct {
			Metadata struct {
				Continue string `json:"continue"`
			} `json:"metadata"`
			Items []*definition `json:"items"`
		}
		if err := c.GetJSON(ctx, r, &page); err != nil {
			return all, unlessHidden(ctx, c, err)
		}
		for _, d := range page.Items {
			all[schema.GroupResource{Group: d.Spec.Group, Resource: d.Spec.Names.Plural}] = d
		}
		if page.Metadata.Continue == "" {
			return all, nil
		}
		r.Options.Continue = page.Metadata.Continue
	}
}
