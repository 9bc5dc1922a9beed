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
	// definitionPageLimit bounds how many are in memory at once: a definition may be a megabyte.
	definitionPageLimit = 50
)

// definition is the part of a CustomResourceDefinition that is read.
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
	// Epoch identifies all parts of the definition that the API server makes its answers from: as long
	// as it is the same, the API server's watches go on, too. It is not the generation, which deletion
	// raises while objects are still served.
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

// isEstablished reports whether the API server serves the defined resource.
func (d *definition) isEstablished() bool {
	for _, c := range d.Status.Conditions {
		if c.Type == "Established" {
			return c.Status == "True"
		}
	}
	return false
}

// plainPath is a selectable field's path without brackets or quotes. A field with another path is
// not selectable here, and requests with its selector pass through.
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

// readDefinition reads the definition of one custom resource; nil if the proxy may not.
func readDefinition(ctx context.Context, c *upstream.Client, gr schema.GroupResource) (*definition, error) {
	d, path := new(definition), customResourceDefinitions+"/"+gr.String()
	if err := c.GetJSON(ctx, upstream.GetRequest{Verb: "get", Path: path}, d); err != nil {
		return nil, unlessHidden(ctx, c, err)
	}
	return d, nil
}

// readDefinitions reads all definitions; none if the proxy may not.
func readDefinitions(ctx context.Context, c *upstream.Client) (map[schema.GroupResource]*definition, error) {
	all := map[schema.GroupResource]*definition{}
	options := metav1.ListOptions{Limit: definitionPageLimit}
	r := upstream.GetRequest{Verb: "list", Path: customResourceDefinitions, Options: options}
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
