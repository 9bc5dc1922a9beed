package auth

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
)

type (
	userInfo   = authenticationv1.UserInfo
	extraValue = authenticationv1.ExtraValue
)

// An identity that a header would change is refused, and the error names the part of it.
func TestImpersonationRefusesWhatHeadersChange(t *testing.T) {
	for _, lost := range []string{
		" x", "x ", "\tx", "x\t", " ", "\t", "x\n", "x\r", "x\r\nImpersonate-Group: system:masters", "a\nb", "a\x00b",
		"a\x7fb", "a\x1bb", "a\vb", "a\fb",
	} {
		for part, user := range map[string]userInfo{
			"user":  {Username: lost},
			"group": {Username: "a", Groups: []string{"b", lost}},
			"uid":   {Username: "a", UID: lost},
			"extra": {Username: "a", Extra: map[string]extraValue{"k": {"v", lost}}},
		} {
			as, err := NewImpersonation(NewIdentity(user))
			var refused *UnencodableIdentityError
			if !errors.As(err, &refused) || refused.Part != part || as != nil {
				t.Errorf("%s %q: got %v, %v", part, lost, as, err)
			}
		}
	}
	for part, who := range map[string]*Identity{
		"user":     {},
		"user ":    NewIdentity(userInfo{Username: anonymousUser, Groups: []string{"dev"}}),
		"extra":    NewIdentity(userInfo{Username: "a", Extra: map[string]extraValue{"k": {}}}),
		"identity": NewIdentity(userInfo{Username: "a", Groups: slices.Repeat([]string{"dev"}, 30000)}),
	} {
		_, err := NewImpersonation(who)
		var refused *UnencodableIdentityError
		if !errors.As(err, &refused) || refused.Part != strings.TrimSpace(part) {
			t.Errorf("%s: got %v", part, err)
		}
	}
}

// What arrives byte for byte is carried: odd, empty and foreign names.
func TestImpersonationCarriesOddNames(t *testing.T) {
	for _, odd := range []string{"a b", "a\tb", "ä", "a,b", "a%20b", "%", "\xff", "\u00a0", "a\u2028", "𝔘", "a: b",
		`"a"`, "A", "a\ufffd"} {
		user := userInfo{Username: odd, UID: odd, Groups: []string{odd, "", odd},
			Extra: map[string]extraValue{odd: {odd, ""}}}
		as, err := NewImpersonation(NewIdentity(user))
		if err != nil {
			t.Errorf("%q: %v", odd, err)
			continue
		}
		if h := as.header; h.Get("Impersonate-User") != odd || h.Get("Impersonate-Uid") != odd ||
			!slices.Equal(h["Impersonate-Group"], user.Groups) {
			t.Errorf("%q: got %q", odd, h)
		}
	}
}

// An extra key travels as the name of a header, in which no letter's case and no other byte
// survives unless it is escaped.
func TestImpersonationEscapesExtraKeys(t *testing.T) {
	as, err := NewImpersonation(NewIdentity(userInfo{Username: "a", Extra: map[string]extraValue{
		"example.com/team": {"1"}, "Team": {"2"}, "team": {"3"}, "a\nb": {"4"}, "": {"5"}, "%41": {"6"},
	}}))
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"Impersonate-Extra-", "Impersonate-Extra-%2541", "Impersonate-Extra-%54eam", "Impersonate-Extra-A%0ab",
		"Impersonate-Extra-Example.com%2fteam",
		"Impersonate-Extra-Team", "Impersonate-User",
	}
	if got := slices.Sorted(maps.Keys(as.header)); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// The groups that headers name, and the one that the API server adds, are those of the identity in
// their order.
func TestImpersonationKeepsGroups(t *testing.T) {
	for _, c := range []struct {
		name        string
		groups, out []string
	}{
		{"a", nil, nil},
		{"a", []string{"dev", "ops"}, []string{"dev", "ops"}},
		{"a", []string{"dev", authenticatedGroup}, []string{"dev"}},
		{"a", []string{authenticatedGroup, "dev"}, []string{authenticatedGroup, "dev"}},
		{"a", []string{authenticatedGroup, authenticatedGroup}, []string{authenticatedGroup, authenticatedGroup}},
		{"a", []string{unauthenticatedGroup, authenticatedGroup}, []string{unauthenticatedGroup, authenticatedGroup}},
		{"a", []string{unauthenticatedGroup}, []string{unauthenticatedGroup}},
		{anonymousUser, []string{"dev", unauthenticatedGroup}, []string{"dev", unauthenticatedGroup}},
		{"system:serviceaccount:n:a", nil, []string{authenticatedGroup}}, // else the API server adds those of its namespace
		{"system:node:a", nil, []string{authenticatedGroup}},             // else the API server may add system:nodes
	} {
		as, err := NewImpersonation(NewIdentity(userInfo{Username: c.name, Groups: c.groups}))
		if err != nil {
			t.Errorf("%s %q: %v", c.name, c.groups, err)
		} else if got := as.header["Impersonate-Group"]; !slices.Equal(got, c.out) {
			t.Errorf("%s %q: got %q, want %q", c.name, c.groups, got, c.out)
		}
	}
}

// roundTripper is a function that sends a request.
type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// Nothing that a request says of impersonation itself is left, and the request itself stays as it
// is.
func TestImpersonationReplacesHeaders(t *testing.T) {
	as, err := NewImpersonation(NewIdentity(userInfo{Username: "a"}))
	if err != nil {
		t.Fatal(err)
	}
	var sent http.Header
	r, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://upstream/", nil)
	r.Header = http.Header{"Impersonate-User": {"b"}, "impersonate-group": {"system:masters"},
		"Impersonate-Extra-K": {"v"}, "Accept": {"*/*"}}
	before := r.Header.Clone()
	_, _ = as.Through(roundTripper(func(r *http.Request) (*http.Response, error) {
		sent = r.Header
		return nil, http.ErrServerClosed
	})).RoundTrip(r)
	want := http.Header{"Impersonate-User": {"a"}, "Accept": {"*/*"}}
	if !maps.EqualFunc(sent, want, slices.Equal[[]string]) || !maps.EqualFunc(r.Header, before, slices.Equal[[]string]) {
		t.Errorf("sent %q, want %q; left %q", sent, want, r.Header)
	}
}

// A review in JSON would ask about another user, or another object: the API server is not asked.
func TestReviewsAskOnlyAboutText(t *testing.T) {
	get := Attributes{Verb: "get", Resource: "pods", Name: "a"}
	for text, q := range map[string]ReviewRequest{
		"a name":      {NewIdentity(userInfo{Username: "a\xff"}), get},
		"a group":     {NewIdentity(userInfo{Username: "a", Groups: []string{"\xff"}}), get},
		"an extra":    {NewIdentity(userInfo{Username: "a", Extra: map[string]extraValue{"k": {"\xff"}}}), get},
		"a key":       {NewIdentity(userInfo{Username: "a", Extra: map[string]extraValue{"\xff": {"v"}}}), get},
		"a namespace": {NewIdentity(userInfo{Username: "a"}), Attributes{Verb: "get", Resource: "pods", Namespace: "\xff"}},
	} {
		if q.isText() {
			t.Errorf("%s: taken for text", text)
		}
	}
	if q := (ReviewRequest{NewIdentity(userInfo{Username: "a \n\x00ä\ufffd"}), get}); !q.isText() {
		t.Error("text is refused")
	}
}

// allowAllReviewer answers every review with yes.
type allowAllReviewer struct {
	user  userInfo
	asked []string
}

func (a *allowAllReviewer) token(_ context.Context, token Secret, _ []string) (authenticationv1.TokenReviewStatus,
	error) {
	a.asked = append(a.asked, token.Reveal())
	return authenticationv1.TokenReviewStatus{Authenticated: true, User: a.user}, nil
}

func (a *allowAllReviewer) access(_ context.Context,
	spec authorizationv1.SubjectAccessReviewSpec) (authorizationv1.SubjectAccessReviewStatus, error) {
	a.asked = append(a.asked, spec.User)
	return authorizationv1.SubjectAccessReviewStatus{Allowed: true}, nil
}

// A review that would carry another token, or whose answer may name another user, proves nothing.
// An identity that a review cannot carry is not authorized.
func TestReviewsThatChangeAnIdentityProveNothing(t *testing.T) {
	up := &allowAllReviewer{user: userInfo{Username: "alice"}}
	reviewer := &Reviewer{reviewClient: up}
	a := NewAuthenticator(AuthenticatorOptions{Reviewer: reviewer})
	with := func(value string) Result {
		return a.Authenticate(t.Context(), AuthnRequest{Header: http.Header{"Authorization": {value}}})
	}
	for _, value := range []string{"Bearer t\t more", "Bearer \tt", "Bearer t\xff", "Bearer t\u00a0 more"} {
		if r := with(value); r.Outcome != Refused || len(up.asked) != 0 {
			t.Errorf("%q: %s, asked about %q", value, r.Outcome, up.asked)
		}
	}
	for i, user := range []userInfo{
		{Username: "a\ufffd"}, {Username: "a", Groups: []string{"b", "\ufffd"}}, {Username: "a", UID: "\ufffd"},
		{Username: "a", Extra: map[string]extraValue{"k": {"\ufffd"}}},
	} {
		up.user = user
		if r := with(fmt.Sprint("Bearer u", i)); r.Outcome != Refused {
			t.Errorf("%q: %s", user, r.Outcome)
		}
	}
	up.user, up.asked = userInfo{Username: "a\nb "}, nil
	if r := with("Bearer t"); r.Outcome != Authenticated || r.Identity.Name() != "a\nb " {
		t.Errorf("got %s", seen(r))
	}
	z := NewAuthorizer(AuthorizerOptions{Reviewer: reviewer})
	up.asked = nil
	d := z.Authorize(t.Context(), NewIdentity(userInfo{Username: "a\xff"}), Attributes{Verb: "get", Resource: "pods"})
	if d.Verdict != Unreviewed || !errors.Is(d.Err, ErrNotText) || len(up.asked) != 0 {
		t.Errorf("got %+v, asked about %q", d, up.asked)
	}
}
