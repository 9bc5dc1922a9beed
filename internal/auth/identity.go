package auth

import (
	"maps"
	"slices"
)

// Names that kube-apiserver gives a meaning to.
const (
	anonymousUser        = "system:anonymous"
	authenticatedGroup   = "system:authenticated"
	unauthenticatedGroup = "system:unauthenticated"
	credentialIDExtra    = "authentication.kubernetes.io/credential-id"
)

// Identity is whom a request is from, in the words that a SubjectAccessReview has for it. Immutable: it is shared by all that ask about it.
type Identity struct {
	Name   string
	UID    string
	Groups []string
	Extra  map[string][]string
}

// authenticated is the identity with the group of everyone who is known, added where kube-apiserver would.
func (i *Identity) authenticated() *Identity {
	if i.Name == anonymousUser || slices.Contains(i.Groups, authenticatedGroup) || slices.Contains(i.Groups, unauthenticatedGroup) {
		return i
	}
	with := *i
	with.Groups = append(slices.Clone(i.Groups), authenticatedGroup)
	return &with
}

// digest names the identity. Groups in another order are another identity: nothing says that an authorizer takes them for the same.
func (i *Identity) digest(h *hasher) digest {
	parts := append([]string{"identity", i.Name, i.UID, count(i.Groups)}, i.Groups...)
	for _, key := range slices.Sorted(maps.Keys(i.Extra)) {
		parts = append(parts, key, count(i.Extra[key]))
		parts = append(parts, i.Extra[key]...)
	}
	return h.sum(parts...)
}
