package fakeapiserver

import (
	"net/http"
	"slices"
	"strings"

	"github.com/munnerz/goautoneg"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// form is how objects are shown. Everything is JSON here.
type form struct {
	apiVersion string // of PartialObjectMetadata; "": objects are shown whole
}

// isPartial reports that objects are cut down to their metadata (W-45).
func (f form) isPartial() bool { return f.apiVersion != "" }

func (f form) object(o *Obj) []byte { return f.encoded(o.Raw) }

// encoded shows an object that is encoded already.
func (f form) encoded(raw []byte) []byte {
	if f.isPartial() {
		return partial(raw, f.apiVersion)
	}
	return raw
}

// acceptClauses are the elements of Accept, in the order that kube-apiserver's own parser prefers
// (W-42).
func acceptClauses(r *http.Request) []goautoneg.Accept {
	header := strings.Join(r.Header.Values("Accept"), ",")
	if strings.TrimSpace(header) == "" {
		header = "*/*"
	}
	return goautoneg.ParseAccept(header)
}

// isJSON reports that JSON satisfies an element of Accept.
func isJSON(c goautoneg.Accept) bool {
	return slices.Contains([]string{"application/json", "application/*", "*/*"}, c.Type+"/"+c.SubType)
}

// negotiate picks the form of an answer. A transform must be the one that fits the verb (W-44).
func negotiate(r *http.Request, verb string) (form, error) {
	transform, types := "PartialObjectMetadata", "application/json"
	switch verb {
	case verbList:
		transform = "PartialObjectMetadataList"
	case verbWatch:
		types += ";stream=watch"
	}
	for _, c := range acceptClauses(r) {
		if stream := c.Params["stream"]; !isJSON(c) || stream != "" && stream != "watch" {
			continue
		}
		as, group, version := c.Params["as"], c.Params["g"], c.Params["v"]
		if as == "" && group == "" && version == "" {
			return form{}, nil
		}
		if as == transform && group == metav1.GroupName && (version == "v1" || version == "v1beta1") {
			return form{apiVersion: group + "/" + version}, nil
		}
	}
	return form{}, failed(http.StatusNotAcceptable, metav1.StatusReasonNotAcceptable,
		"only the following media types are accepted: "+types, nil)
}

func acceptsJSON(r *http.Request) bool {
	return slices.ContainsFunc(acceptClauses(r), func(c goautoneg.Accept) bool {
		return c.Params["as"] == "" && isJSON(c)
	})
}
