package auth

import (
	"net/http"
	"slices"
	"strings"

	"k8s.io/client-go/transport"
)

// Impersonate sends requests as somebody else, with through, which adds the credentials of one who may. What else in their headers says
// who is asking must be gone.
func Impersonate(who *Identity, through http.RoundTripper) http.RoundTripper {
	// Upstream adds the group of everyone who is known by itself, and naming it would take a right of its own.
	groups := slices.DeleteFunc(slices.Clone(who.Groups), func(group string) bool { return group == authenticatedGroup })
	if len(groups) == 0 && strings.HasPrefix(who.Name, serviceAccountPrefix) {
		groups = who.Groups // without any, upstream would give him those of his namespace
	}
	return transport.NewImpersonatingRoundTripper(transport.ImpersonationConfig{
		UserName: who.Name, UID: who.UID, Groups: groups, Extra: who.Extra,
	}, through)
}
