package auth

import "spillway/internal/requestinfo"

// Attributes are what a request wants to do, as an authorizer sees it (W-22). Requests that an
// authorizer cannot tell apart have equal Attributes: how long a watch lasts and where it begins
// play no part.
type Attributes struct {
	Verb string
	// Path is set for what is no resource, such as /version. The fields below it are empty then.
	Path string

	Group, Version, Resource, Subresource string
	Namespace, Name                       string
	// FieldSelector and LabelSelector are as they were sent, well-formed or not.
	FieldSelector, LabelSelector string
}

// AttributesOf reads a request as kube-apiserver does. path and query are as they were sent, with
// percent escapes. It reports false for a request that the API server refuses ahead of its
// authorizer.
func AttributesOf(method, path, query string) (Attributes, bool) {
	info, err := requestinfo.Read(method, path, query)
	switch {
	case err != nil:
		return Attributes{}, false
	case !info.IsResourceRequest:
		return Attributes{Verb: info.Verb, Path: info.Path}, true
	}
	return Attributes{
		Verb: info.Verb, Group: info.APIGroup, Version: info.APIVersion, Resource: info.Resource,
		Subresource: info.Subresource, Namespace: info.Namespace, Name: info.Name,
		FieldSelector: info.FieldSelector, LabelSelector: info.LabelSelector,
	}, true
}

// digest names the question whether an identity may do this.
func (a *Attributes) digest(h *Hasher, who Digest) Digest {
	return h.Sum("attributes", string(who[:]), a.Verb, a.Path, a.Group, a.Version, a.Resource, a.Subresource,
		a.Namespace, a.Name, a.FieldSelector, a.LabelSelector)
}
