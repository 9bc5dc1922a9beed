package auth

import (
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	authenticationv1 "k8s.io/api/authentication/v1"
)

// Names that kube-apiserver gives a meaning to.
const (
	anonymousUser        = "system:anonymous"
	authenticatedGroup   = "system:authenticated"
	unauthenticatedGroup = "system:unauthenticated"
)

// CredentialIDExtra is where an identity names the credential that proved it. ServiceAccountPrefix
// begins the user names of service accounts.
const (
	CredentialIDExtra    = "authentication.kubernetes.io/credential-id"
	ServiceAccountPrefix = "system:serviceaccount:"
)

// Identity is the user of a request, byte for byte as kube-apiserver has it after authentication.
// Immutable: many requests share it.
//
// NewIdentity alone makes one, whatever proves it: a certificate, a front proxy's headers, a
// review, a token that is verified here. Headers and JSON would change bytes of some identities. So
// headers are made of an Impersonation, and a review only of an identity that JSON can write
// (isText).
type Identity struct {
	name, uid string
	groups    []string
	extra     map[string][]string
}

// NewIdentity copies a user, and adds the group of all authenticated users where kube-apiserver
// adds it. A user without a name is no identity: nil.
func NewIdentity(user authenticationv1.UserInfo) *Identity {
	if user.Username == "" {
		return nil
	}
	i := &Identity{name: user.Username, uid: user.UID, groups: slices.Clone(user.Groups)}
	if user.Username != anonymousUser && !i.MemberOf(authenticatedGroup) && !i.MemberOf(unauthenticatedGroup) {
		i.groups = append(i.groups, authenticatedGroup)
	}
	if len(user.Extra) > 0 {
		i.extra = make(map[string][]string, len(user.Extra))
		for key, values := range user.Extra {
			i.extra[key] = slices.Clone(values)
		}
	}
	return i
}

// Name is the user's name.
func (i *Identity) Name() string { return i.name }

// AnyGroup reports that a group of the user's satisfies is.
func (i *Identity) AnyGroup(is func(group string) bool) bool {
	return slices.ContainsFunc(i.groups, is)
}

// Extra are the values of an extra key. They must not be modified.
func (i *Identity) Extra(key string) []string { return i.extra[key] }

// Equal reports that both are the same in every part, with groups in the same order, as in digest.
func (i *Identity) Equal(j *Identity) bool {
	return i == j || i.name == j.name && i.uid == j.uid && slices.Equal(i.groups, j.groups) &&
		maps.EqualFunc(i.extra, j.extra, slices.Equal)
}

// MemberOf reports that the user is in a group of exactly this name.
func (i *Identity) MemberOf(group string) bool { return slices.Contains(i.groups, group) }

// UserInfo is a copy of the identity, as reviews write it.
func (i *Identity) UserInfo() authenticationv1.UserInfo {
	info := authenticationv1.UserInfo{
		Username: i.name, UID: i.uid, Groups: slices.Clone(i.groups),
		Extra: make(map[string]authenticationv1.ExtraValue, len(i.extra)),
	}
	for key, values := range i.extra {
		info.Extra[key] = slices.Clone(values)
	}
	return info
}

// parts are all texts of the identity.
func (i *Identity) parts() []string {
	parts := append([]string{i.name, i.uid}, i.groups...)
	for key, values := range i.extra {
		parts = append(append(parts, key), values...)
	}
	return parts
}

// isText reports that JSON carries every text of the identity. An encoder writes U+FFFD for a byte
// that is no UTF-8, and thereby the name of another user.
func (i *Identity) isText() bool { return isText(i.parts()...) }

func isText(parts ...string) bool {
	return !slices.ContainsFunc(parts, func(s string) bool { return !utf8.ValidString(s) })
}

// HasReplacementCharacter reports that a text of the identity has a U+FFFD. In an answer in JSON it
// may stand for a byte that the API server's own copy of the identity has.
func (i *Identity) HasReplacementCharacter() bool {
	return slices.ContainsFunc(i.parts(), func(s string) bool { return strings.ContainsRune(s, utf8.RuneError) })
}

// digest names the identity. Groups in another order are another identity: nothing says that an
// authorizer takes them for the same.
func (i *Identity) digest(h *Hasher) Digest {
	parts := append([]string{"identity", i.name, i.uid, count(i.groups)}, i.groups...)
	for _, key := range slices.Sorted(maps.Keys(i.extra)) {
		parts = append(parts, key, count(i.extra[key]))
		parts = append(parts, i.extra[key]...)
	}
	return h.Sum(parts...)
}
