package auth

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"net/textproto"
	"net/url"
	"slices"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"

	"spillway/internal/flowcontrol"
)

// FrontProxy is a proxy in front of this one that authenticates users and names them in headers. It
// proves itself with a certificate, and only then do its headers count. Immutable but for its
// Authority.
type FrontProxy struct {
	Authority *Authority
	// AllowedNames are the common names that its certificate may have; empty: any that the
	// Authority vouches for.
	AllowedNames []string
	// The headers of a user's name, id and groups, and the prefixes of those of anything else. By
	// convention these are X-Remote-User, X-Remote-Uid, X-Remote-Group and X-Remote-Extra-.
	NameHeaders, UIDHeaders, GroupHeaders, ExtraPrefixes []string
}

var errFrontProxyName = errors.New("the front proxy's name is not allowed")

// ReadsHeader reports that a header, by its canonical key, says which user the front proxy vouches
// for.
func (p *FrontProxy) ReadsHeader(name string) bool {
	for _, list := range [][]string{p.NameHeaders, p.UIDHeaders, p.GroupHeaders} {
		if slices.ContainsFunc(list, func(h string) bool { return strings.EqualFold(h, name) }) {
			return true
		}
	}
	return slices.ContainsFunc(p.ExtraPrefixes, func(prefix string) bool { return hasPrefixFold(name, prefix) })
}

// verify reports why a certificate is not the front proxy's.
func (p *FrontProxy) verify(ctx context.Context, flow flowcontrol.Flow, chain Chain, now time.Time) error {
	if err := p.Authority.Verify(ctx, flow, chain, now); err != nil {
		return err
	}
	if len(p.AllowedNames) > 0 && !slices.Contains(p.AllowedNames, chain.leaf().Subject.CommonName) {
		return errFrontProxyName
	}
	return nil
}

// userOf is the user that headers name, as kube-apiserver reads them: the first name, the first id,
// all groups. nil: none.
func (p *FrontProxy) userOf(h http.Header) *Identity {
	name := firstValue(h, p.NameHeaders)
	if name == "" {
		return nil
	}
	user := authenticationv1.UserInfo{Username: name, UID: firstValue(h, p.UIDHeaders),
		Extra: map[string]authenticationv1.ExtraValue{}}
	for _, header := range p.GroupHeaders {
		for _, group := range h[textproto.CanonicalMIMEHeaderKey(header)] {
			if group != "" {
				user.Groups = append(user.Groups, group)
			}
		}
	}
	headers := slices.Sorted(maps.Keys(h)) // the same identity each time, whatever the order of a map
	for _, prefix := range p.ExtraPrefixes {
		for _, header := range headers {
			if hasPrefixFold(header, prefix) {
				key := extraKey(header[len(prefix):])
				user.Extra[key] = append(user.Extra[key], h[header]...)
			}
		}
	}
	return NewIdentity(user)
}

func firstValue(h http.Header, names []string) string {
	for _, name := range names {
		if value := h.Get(name); value != "" {
			return value
		}
	}
	return ""
}

// extraKey is the key that the rest of a header's name stands for: lower case, and percent-decoded
// if that can be.
func extraKey(encoded string) string {
	encoded = strings.ToLower(encoded)
	if key, err := url.PathUnescape(encoded); err == nil {
		return key
	}
	return encoded
}
