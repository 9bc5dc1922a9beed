package passthrough

import (
	"fmt"
	"net/http"
	"net/textproto"
	"net/url"
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"spillway/internal/apistatus"
	"spillway/internal/auth"
	"spillway/internal/plan"
)

// unsendableReason returns what of a request cannot be sent upstream as it came, in net/http's
// words, or "". targetURL judges the target.
func unsendableReason(in *Inbound) string {
	if !httpguts.ValidHeaderFieldName(in.method) { // a method is the same kind of token
		return "invalid method"
	}
	for key, values := range in.Header {
		if !httpguts.ValidHeaderFieldName(key) {
			return "invalid header name"
		}
		if slices.ContainsFunc(values, func(v string) bool { return !httpguts.ValidHeaderFieldValue(v) }) {
			return "invalid header value"
		}
	}
	if strings.ContainsFunc(in.upgrade, func(r rune) bool { return r < ' ' || r > '~' }) {
		return "invalid Upgrade header" // net/http's proxy sends none such
	}
	return ""
}

// refusal returns why a request may not go upstream, or nil: headers that would change its user
// and, under lent credentials, paths and queries that upstream may read differently.
func (f *Forwarder) refusal(in *Inbound, sender SenderIdentity) *metav1.Status {
	switch s := f.connectionRefusal(in.Header); {
	case s != nil:
		return s
	case !sender.canLend(in.Header):
		return impersonationLoss(in.Header)
	}
	if s := lentHeaderRefusal(in.Header); s != nil {
		return s
	}
	return placeRefusal(f.opts.Base, in)
}

// isClaimed reports whether a header is one in which a front proxy vouches for a user. key is
// canonical.
func (f *Forwarder) isClaimed(key string) bool {
	return strings.HasPrefix(key, "X-Remote-") || f.opts.IsClaimed != nil && f.opts.IsClaimed(key)
}

// connectionRefusal refuses Connection headers that name a header which identifies the sender.
func (f *Forwarder) connectionRefusal(in http.Header) *metav1.Status {
	for name := range connectionTokens(in) {
		key := textproto.CanonicalMIMEHeaderKey(name)
		if IsIdentityHeader(key) || f.isClaimed(key) || key == "Sec-Websocket-Protocol" && HasOwnCredentials(nil, in[key]) {
			return apistatus.BadRequest("the Connection header must not name " + apistatus.Clip(name) +
				": a proxy would drop it and change the user of the request")
		}
	}
	return nil
}

// impersonationLoss refuses headers of the client's own from which upstream would read another
// identity than here: over HTTP/2 a value may begin or end with a blank, which HTTP/1.1 drops on
// the way to upstream.
func impersonationLoss(in http.Header) *metav1.Status {
	for key, values := range in {
		if !strings.HasPrefix(key, "Impersonate-") {
			continue
		}
		for _, value := range values {
			if why := auth.HeaderLoss(value); why != "" {
				return apistatus.Forbidden(
					fmt.Sprintf("the value %q of the header %s %s: send it without, or use the API server itself",
						apistatus.Clip(value), apistatus.Clip(key), why))
			}
		}
	}
	return nil
}

// lentHeaderRefusal refuses impersonation under lent credentials: the lender's right to impersonate
// is not the client's.
func lentHeaderRefusal(in http.Header) *metav1.Status {
	for key := range in {
		if strings.HasPrefix(key, "Impersonate-") {
			return apistatus.Forbidden(apistatus.Clip(key) +
				" is refused for requests that bring no credentials of their own that can be forwarded: " +
				"send your own Authorization")
		}
	}
	return nil
}

// placeRefusal refuses what might lead lent credentials elsewhere. They are lent for the API server
// at base, and for what is read of the request here; the client must not choose another place, nor
// have more read there.
func placeRefusal(base *url.URL, in *Inbound) *metav1.Status {
	switch {
	case base.Path != "" && base.Path != "/" && canStray(in.rawPath):
		return apistatus.BadRequest(
			fmt.Sprintf("path %q is refused for requests that bring no credentials of their own that can be forwarded: "+
				"it must have no . or .. segments, backslashes, encoded slashes or control characters, because the API server "+
				"is below a path of its host; send your own Authorization", apistatus.Clip(in.rawPath)))
	case plan.IsOverfull(in.query):
		return apistatus.BadRequest(
			fmt.Sprintf("more than %d query parameters are refused for requests that bring no credentials of their own that "+
				"can be forwarded: send fewer, or your own Authorization", plan.QueryParametersLimit))
	}
	return nil
}
