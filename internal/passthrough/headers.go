package passthrough

import (
	"fmt"
	"iter"
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

// WebSocketBearer starts the subprotocol in which browsers send a bearer token (W-119).
const WebSocketBearer = "base64url.bearer.authorization.k8s.io." // #nosec G101 -- a prefix, not a token

// hopByHop are the headers that end at this proxy, and those that it or the transport writes anew.
var hopByHop = []string{
	"Connection", "Proxy-Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization", "Te", "Trailer",
	"Transfer-Encoding", "Upgrade", "Content-Length", "Expect", "Host",
	"Forwarded", "X-Forwarded-Host", "X-Forwarded-Proto",
}

// OwnCredentials reports whether a request brings an identity of its own, in the only two places
// where upstream looks for one on a plain connection. An empty Authorization counts: a client that
// sends it does not request the proxy's.
func OwnCredentials[S ~string | ~[]byte](authorization, protocols []S) bool {
	if len(authorization) > 0 {
		return true
	}
	for _, p := range protocols {
		if strings.Contains(string(p), WebSocketBearer) {
			return true
		}
	}
	return false
}

// OwnIdentity reports whether a header gives a request an identity of its own, so that its loss
// would change the answer. key is canonical.
func OwnIdentity(key string) bool {
	return key == "Authorization" || strings.HasPrefix(key, "Impersonate-")
}

// isClaimed reports whether a header is one in which a front proxy vouches for a user. key is
// canonical.
func (f *Forwarder) isClaimed(key string) bool {
	return strings.HasPrefix(key, "X-Remote-") || f.Opts.IsClaimed != nil && f.Opts.IsClaimed(key)
}

// refusal returns why a request may not go upstream, or nil: headers that would change whose
// request it is and, under lent credentials, paths and queries that upstream may read otherwise.
func (f *Forwarder) refusal(in *Inbound, b SenderIdentity) *metav1.Status {
	if s := headerRefusal(in.Header, b, f.isClaimed); s != nil || !b.canLend(in.Header) {
		return s
	}
	return placeRefusal(f.Opts.Base, in)
}

// placeRefusal returns why a request may not be forwarded under credentials that are not its own,
// or nil. They are lent for the apiserver at base, and for what is read of the request here; the
// client must not choose another place, nor have more read there.
func placeRefusal(base *url.URL, in *Inbound) *metav1.Status {
	path, query, _ := strings.Cut(in.target, "?")
	switch {
	case base.Path != "" && base.Path != "/" && strays(path):
		return apistatus.BadRequest(
			fmt.Sprintf("path %q is refused for requests that bring no credentials of their own that can be forwarded: "+
				"it must have no . or .. segments, backslashes, encoded slashes or control characters, since the apiserver "+
				"is below a path of its host; send your own Authorization", apistatus.Clip(path)))
	case plan.Overfull(query):
		return apistatus.BadRequest(
			fmt.Sprintf("more than %d query parameters are refused for requests that bring no credentials of their own that "+
				"can be forwarded: send fewer, or your own Authorization", plan.QueryParametersLimit))
	}
	return nil
}

// unsendableReason returns what of a request cannot be sent upstream as it came, in net/http's
// words, or "". The target is looked at elsewhere.
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

// placeHeaders begin the names of headers by which a front describes the original request to
// another, or a client pretends to be such a front: for some of them a front serves another path or
// host, or understands another method, than the request line says.
var placeHeaders = []string{"X-Original-", "X-Rewrite-", "X-Forwarded-", "X-Http-Method", "X-Method-", "X-Envoy-",
	"X-Ms-Original-", "X-Waws-Unencoded-"}

// dropPlaceHeaders deletes the placeHeaders of a request that travels under lent credentials.
func dropPlaceHeaders(out http.Header) {
	for key := range out {
		if key != "X-Forwarded-For" &&
			slices.ContainsFunc(placeHeaders, func(place string) bool { return strings.HasPrefix(key, place) }) {
			delete(out, key)
		}
	}
}

// headerRefusal returns why these headers may not be forwarded, or nil: under the client's own
// credentials or lent ones. The lender's right to impersonate is not the client's. claims
// recognises the headers of a front proxy.
func headerRefusal(in http.Header, b SenderIdentity, claims func(string) bool) *metav1.Status {
	for name := range connectionTokens(in) {
		key := textproto.CanonicalMIMEHeaderKey(name)
		if OwnIdentity(key) || claims(key) || key == "Sec-Websocket-Protocol" && OwnCredentials(nil, in[key]) {
			return apistatus.BadRequest("the Connection header must not name " + apistatus.Clip(name) +
				": a proxy would drop it and change the user of the request")
		}
	}
	if !b.canLend(in) {
		return impersonationLoss(in)
	}
	for key := range in {
		if strings.HasPrefix(key, "Impersonate-") {
			return apistatus.Forbidden(apistatus.Clip(key) +
				" is refused for requests that bring no credentials of their own that can be forwarded: " +
				"send your own Authorization")
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
					fmt.Sprintf("the value %q of the header %s %s: send it without, or use the apiserver itself",
						apistatus.Clip(value), apistatus.Clip(key), why))
			}
		}
	}
	return nil
}

// outgoingHeader is what upstream gets to see of in: hop-by-hop headers and claims of a front proxy
// are gone, peer (an IP, or empty) is appended to X-Forwarded-For, and an absent User-Agent stays
// absent. upgrade, if not empty, is the protocol asked for. in is left as it is.
func outgoingHeader(in http.Header, claims func(string) bool, peer, upgrade string) http.Header {
	out := make(http.Header, len(in)+2)
	for key, values := range in {
		if !claims(key) {
			out[key] = values[:len(values):len(values)]
		}
	}
	for name := range connectionTokens(in) {
		out.Del(name)
	}
	for _, name := range hopByHop {
		delete(out, name)
	}
	if upgrade != "" {
		out["Connection"], out["Upgrade"] = []string{"Upgrade"}, []string{upgrade}
	}
	if peer != "" {
		out["X-Forwarded-For"] = []string{strings.Join(append(out["X-Forwarded-For"], peer), ", ")}
	}
	if _, ok := out["User-Agent"]; !ok {
		out["User-Agent"] = []string{""} // else net/http's transport writes its own
	}
	return out
}

// responseHeader removes from an answer what ends at this proxy.
func responseHeader(h http.Header) {
	for name := range connectionTokens(h) {
		h.Del(name)
	}
	for _, name := range []string{"Connection", "Proxy-Connection", "Keep-Alive", "Proxy-Authenticate", "Te", "Trailer",
		"Transfer-Encoding", "Upgrade"} {
		delete(h, name)
	}
}

// upgradeProtocol is the protocol that a request asks to switch to, or empty.
func upgradeProtocol(h http.Header) string {
	for name := range connectionTokens(h) {
		if strings.EqualFold(name, "Upgrade") {
			return h.Get("Upgrade")
		}
	}
	return ""
}

// connectionTokens are the names listed in Connection headers.
func connectionTokens(h http.Header) iter.Seq[string] {
	return func(yield func(string) bool) {
		for _, value := range h["Connection"] {
			for name := range strings.SplitSeq(value, ",") {
				if name = textproto.TrimString(name); name != "" && !yield(name) {
					return
				}
			}
		}
	}
}

// hasCredentials reports that upstream reads credentials of the request, so that its answer shows
// whether they are good: a bearer token, or that of a WebSocket's subprotocol (W-119). A preflight
// (OPTIONS) is answered ahead of authentication.
func (in *Inbound) hasCredentials() bool {
	if in.method == http.MethodOptions {
		return false
	}
	_, hasToken := auth.BearerToken(in.Header)
	return hasToken ||
		strings.EqualFold(in.upgrade, "websocket") && OwnCredentials(nil, in.Header["Sec-Websocket-Protocol"])
}
