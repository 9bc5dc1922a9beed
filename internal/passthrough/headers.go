package passthrough

import (
	"iter"
	"net/http"
	"net/textproto"
	"slices"
	"strings"
)

// hopByHop are the headers of requests and answers that end at this proxy.
var hopByHop = []string{
	"Connection", "Proxy-Connection", "Keep-Alive", "Proxy-Authenticate", "Te", "Trailer", "Transfer-Encoding", "Upgrade",
}

// ownHeaders are the other headers of a request that end here, or that the proxy or the transport
// writes itself.
var ownHeaders = []string{
	"Proxy-Authorization", "Content-Length", "Expect", "Host", "Forwarded", "X-Forwarded-Host", "X-Forwarded-Proto",
}

// placePrefixes are prefixes of header names. With such headers one front proxy describes the
// original request to the next, or a client pretends to be a front proxy. Some fronts obey them:
// they serve another path, host or method than that of the request line.
var placePrefixes = []string{"X-Original-", "X-Rewrite-", "X-Forwarded-", "X-Http-Method", "X-Method-", "X-Envoy-",
	"X-Ms-Original-", "X-Waws-Unencoded-"}

// upstreamHeader is what upstream gets to see of a request's header.
func (f *Forwarder) upstreamHeader(in *Inbound, sender SenderIdentity) http.Header {
	out := outgoingHeader(in, f.isClaimed)
	if sender.As != nil {
		dropIdentityHeaders(out)
	}
	if sender.canLend(in.Header) {
		dropPlaceHeaders(out)
	}
	return out
}

// outgoingHeader is a copy of the header without what ends here, and without the claims of a front
// proxy. The client's address is appended to X-Forwarded-For, and an absent User-Agent stays
// absent.
func outgoingHeader(in *Inbound, isClaimed func(string) bool) http.Header {
	out := make(http.Header, len(in.Header)+2)
	for key, values := range in.Header {
		if !isClaimed(key) {
			out[key] = values[:len(values):len(values)]
		}
	}
	dropHopByHop(out)
	for _, name := range ownHeaders {
		delete(out, name)
	}
	if in.upgrade != "" {
		out["Connection"], out["Upgrade"] = []string{"Upgrade"}, []string{in.upgrade}
	}
	if in.peer != "" {
		out["X-Forwarded-For"] = []string{strings.Join(append(out["X-Forwarded-For"], in.peer), ", ")}
	}
	if _, ok := out["User-Agent"]; !ok {
		out["User-Agent"] = []string{""} // else net/http's transport writes its own
	}
	return out
}

// dropHopByHop deletes what ends at this proxy.
func dropHopByHop(h http.Header) {
	for name := range connectionTokens(h) {
		h.Del(name)
	}
	for _, name := range hopByHop {
		delete(h, name)
	}
}

// dropIdentityHeaders deletes everything that identifies the sender: the transport adds another
// identity.
func dropIdentityHeaders(out http.Header) {
	delete(out, "Authorization")
	for key := range out {
		if strings.HasPrefix(key, "Impersonate-") {
			delete(out, key)
		}
	}
	var protocols []string
	for _, list := range out["Sec-Websocket-Protocol"] {
		for p := range strings.SplitSeq(list, ",") {
			if p = strings.TrimSpace(p); !strings.Contains(p, WebSocketBearer) {
				protocols = append(protocols, p)
			}
		}
	}
	if delete(out, "Sec-Websocket-Protocol"); len(protocols) > 0 {
		out["Sec-Websocket-Protocol"] = []string{strings.Join(protocols, ", ")}
	}
}

// dropPlaceHeaders deletes the headers with one of the placePrefixes. The request travels under
// lent credentials. X-Forwarded-For stays: it names clients, and no place.
func dropPlaceHeaders(out http.Header) {
	for key := range out {
		if key != "X-Forwarded-For" &&
			slices.ContainsFunc(placePrefixes, func(place string) bool { return strings.HasPrefix(key, place) }) {
			delete(out, key)
		}
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
