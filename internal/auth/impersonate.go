package auth

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
)

const (
	impersonateUser  = "Impersonate-User"
	impersonateUID   = "Impersonate-Uid"
	impersonateGroup = "Impersonate-Group"
	impersonateExtra = "Impersonate-Extra-"
)

// Impersonation is an Identity in the headers of a request. kube-apiserver reads the same identity
// out of them, byte for byte, over HTTP/1.1 and over HTTP/2.
//
// NewImpersonation alone makes one, and refuses the identities that a header would change. So a
// deny list that is compared with the identity is compared with what arrives.
type Impersonation struct {
	user   *Identity
	header http.Header
}

const (
	// maxImpersonationBytes is half of what the API server reads of a head; the rest is for the
	// headers of a request.
	maxImpersonationBytes = http.DefaultMaxHeaderBytes / 2
	// headerOverheadBytes is what HTTP/2 counts for a header besides its name and its value.
	headerOverheadBytes = 32
	// quotedBytesLimit bounds what an error repeats of an identity.
	quotedBytesLimit = 128
)

// nodePrefix begins the names of nodes.
const nodePrefix = "system:node:"

// UnencodableIdentityError says why no header carries an identity.
type UnencodableIdentityError struct {
	Part string // user, group, uid, extra, or identity for all of it
	Name string // of the part, quoted
	Why  string
}

// Error implements error.
func (e *UnencodableIdentityError) Error() string {
	return fmt.Sprintf("the %s %s %s", e.Part, e.Name, e.Why)
}

// NewImpersonation puts an identity into headers. The error is an *UnencodableIdentityError.
func NewImpersonation(user *Identity) (*Impersonation, error) {
	if user.name == "" {
		return nil, unencodable("user", user.name, "is empty")
	}
	if user.name == anonymousUser && !user.MemberOf(unauthenticatedGroup) {
		return nil, unencodable("user", user.name,
			"is not in the group "+unauthenticatedGroup+", which the API server would add")
	}
	h := http.Header{impersonateUser: {user.name}}
	if user.uid != "" {
		h[impersonateUID] = []string{user.uid}
	}
	if groups := user.impersonatedGroups(); len(groups) > 0 {
		h[impersonateGroup] = groups
	}
	for key, values := range user.extra {
		if len(values) == 0 {
			return nil, unencodable("extra", key, "has no value")
		}
		h[http.CanonicalHeaderKey(impersonateExtra+headerKey(key))] = values
	}
	size := 0
	for name, values := range h {
		for _, value := range values {
			size += len(name) + len(value) + headerOverheadBytes
			if why := HeaderLoss(value); why != "" {
				return nil, unencodable(partOf(name), value, why)
			}
		}
	}
	if size > maxImpersonationBytes {
		return nil, unencodable("identity", user.name, "is larger than the head of a request may be")
	}
	return &Impersonation{user: user, header: h}, nil
}

// partOf is what a header says of an identity.
func partOf(name string) string {
	switch name {
	case impersonateUser:
		return "user"
	case impersonateUID:
		return "uid"
	case impersonateGroup:
		return "group"
	}
	return "extra"
}

func unencodable(part, name, why string) error {
	if len(name) > quotedBytesLimit {
		name = name[:quotedBytesLimit] + "…"
	}
	return &UnencodableIdentityError{Part: part, Name: fmt.Sprintf("%q", name), Why: why}
}

// HeaderLoss says what HTTP/1.1 or HTTP/2 would do to a header's value on its way; "": it arrives
// byte for byte. An empty value arrives, and so do bytes that are no UTF-8.
func HeaderLoss(value string) string {
	switch {
	case strings.ContainsFunc(value, func(c rune) bool { return c < ' ' && c != '\t' || c == 0x7f }):
		return "holds a control character, which no HTTP header carries"
	case strings.Trim(value, " \t") != value:
		return "begins or ends with a blank or a tab, which an HTTP header loses"
	}
	return ""
}

// impersonatedGroups are the groups that headers name. The API server appends the group of all
// authenticated users by itself, and to name it takes a right of its own: it is left out where the
// API server appends it to the same place. To a service account or a node without named groups it
// would give other groups instead.
func (i *Identity) impersonatedGroups() []string {
	last := len(i.groups) - 1
	if last < 0 || i.groups[last] != authenticatedGroup {
		return i.groups
	}
	others := i.groups[:last]
	if slices.Contains(others, authenticatedGroup) || slices.Contains(others, unauthenticatedGroup) {
		return i.groups
	}
	if last == 0 && (strings.HasPrefix(i.name, ServiceAccountPrefix) || strings.HasPrefix(i.name, nodePrefix)) {
		return i.groups
	}
	return others
}

// headerKey is the end of a header's name that stands for an extra key. kube-apiserver reads it in
// lower case and decodes percent escapes after that, so everything else is escaped, capitals too.
func headerKey(key string) string {
	var b strings.Builder
	for _, c := range []byte(key) {
		if c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '-' || c == '.' || c == '_' {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}

// MemberOf reports that the user that arrives is in a group of exactly this name.
func (i *Impersonation) MemberOf(group string) bool { return i.user.MemberOf(group) }

// Through is a transport that sends requests under the identity. next adds the credentials of a
// user that may impersonate. Requests must have no other credentials of their sender.
func (i *Impersonation) Through(next http.RoundTripper) http.RoundTripper {
	return impersonationTransport{i.header, next}
}

// impersonationTransport replaces the impersonation headers of requests.
type impersonationTransport struct {
	header http.Header
	next   http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (t impersonationTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	for name := range r.Header {
		if hasPrefixFold(name, impersonatePrefix) {
			delete(r.Header, name)
		}
	}
	maps.Copy(r.Header, t.header)
	return t.next.RoundTrip(r)
}
