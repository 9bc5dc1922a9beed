package auth

import (
	"net/http"
	"net/url"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Attributes are what a request wants to do, as an authorizer sees it (W-22). Requests that differ
// in nothing that an authorizer sees have equal Attributes: how long a watch lasts and where it
// begins play no part.
type Attributes struct {
	Verb string
	// Path is set for what is no resource, such as /version, and nothing below it then.
	Path string

	Group, Version, Resource, Subresource string
	Namespace, Name                       string
	// FieldSelector and LabelSelector are as they were sent, well-formed or not.
	FieldSelector, LabelSelector string
}

// AttributesOf reads a request as kube-apiserver does (its RequestInfoFactory). path is as it was
// sent, percent escapes and all; so is query. It reports false for what upstream does not get as
// far as asking its authorizer about.
func AttributesOf(method, path, query string) (Attributes, bool) {
	u, err := url.ParseRequestURI(path)
	if err != nil || !strings.HasPrefix(path, "/") {
		return Attributes{}, false
	}
	a := Attributes{Verb: strings.ToLower(method), Path: u.Path}
	parts := splitPath(u.Path)
	if len(parts) < 3 || parts[0] != "api" && parts[0] != "apis" {
		return a, true
	}
	grouped := parts[0] == "apis"
	if parts = parts[1:]; grouped {
		if len(parts) < 3 {
			return a, true
		}
		a.Group, parts = parts[0], parts[1:]
	}
	a.Path, a.Version, parts = "", parts[0], parts[1:]
	byPath := parts[0] == "watch" || parts[0] == "proxy" // verbs of old
	if byPath {
		if len(parts) < 2 {
			return Attributes{}, false
		}
		a.Verb, parts = parts[0], parts[1:]
	} else {
		a.Verb = verbs[method]
	}
	a.place(parts)
	if !byPath {
		values, _ := url.ParseQuery(query) // what cannot be parsed is dropped pair by pair, as upstream does (W-24)
		a.choose(values)
	}
	return a, true
}

// verbs are those of methods on an object. Any other method has an empty verb.
var verbs = map[string]string{
	http.MethodPost: "create", http.MethodGet: "get", http.MethodHead: "get",
	http.MethodPut: "update", http.MethodPatch: "patch", http.MethodDelete: "delete",
}

// splitPath cuts a decoded path at its slashes; those at its ends do not count.
func splitPath(path string) []string {
	if path = strings.Trim(path, "/"); path == "" {
		return nil
	}
	return strings.Split(path, "/")
}

// place reads what follows the version: a namespace, a resource, a name, a subresource.
func (a *Attributes) place(parts []string) {
	if parts[0] == "namespaces" && len(parts) > 1 {
		a.Namespace = parts[1]
		// namespaces/{name}/status and /finalize are subresources, not resources of a namespace.
		if len(parts) > 2 && parts[2] != "status" && parts[2] != "finalize" {
			parts = parts[2:]
		}
	}
	a.Resource = parts[0]
	if len(parts) > 1 {
		a.Name = parts[1]
	}
	if len(parts) > 2 && a.Verb != "proxy" {
		a.Subresource = parts[2]
	}
}

// choose reads what an authorizer sees of the query: that a GET of a collection is a list or a
// watch, the one name that a field selector leaves, and the selectors.
func (a *Attributes) choose(query url.Values) {
	if a.Name == "" && a.Verb == "get" {
		a.Verb = "list"
		watch, name := listed(query)
		if watch {
			a.Verb = "watch"
		}
		a.Name = name
	}
	if a.Name == "" && a.Verb == "delete" {
		a.Verb = "deletecollection"
	}
	if slices.Contains([]string{"list", "watch", "deletecollection"}, a.Verb) {
		a.FieldSelector, a.LabelSelector = query.Get("fieldSelector"), query.Get("labelSelector")
	}
}

// listed reads the options of a list. Of those that upstream could not decode it takes nothing but
// whether it is a watch, and that as generously as can be.
func listed(query url.Values) (watch bool, name string) {
	var o internalversion.ListOptions
	if err := scheme.ParameterCodec.DecodeParameters(query, metav1.SchemeGroupVersion, &o); err != nil {
		values := query["watch"]
		return len(values) > 0 && values[0] != "0" && !strings.EqualFold(values[0], "false"), ""
	}
	if o.FieldSelector != nil {
		if selected, ok := o.FieldSelector.RequiresExactMatch(metav1.ObjectNameField); ok &&
			len(content.IsPathSegmentName(selected)) == 0 {
			name = selected
		}
	}
	return o.Watch, name
}

// digest names the question whether an identity may do this.
func (a *Attributes) digest(h *hasher, who Digest) Digest {
	return h.sum("attributes", string(who[:]), a.Verb, a.Path, a.Group, a.Version, a.Resource, a.Subresource, a.Namespace,
		a.Name,
		a.FieldSelector, a.LabelSelector)
}
