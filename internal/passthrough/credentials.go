package passthrough

import (
	"net/http"
	"strings"

	"spillway/internal/auth"
)

// WebSocketBearer starts the subprotocol in which browsers send a bearer token (W-119).
const WebSocketBearer = "base64url.bearer.authorization.k8s.io." // #nosec G101 -- a prefix, not a token

// HasOwnCredentials reports whether a request brings an identity of its own, in the only two places
// where upstream looks for one on a plain connection. An empty Authorization counts: a client that
// sends it does not request the proxy's.
func HasOwnCredentials[S ~string | ~[]byte](authorization, protocols []S) bool {
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

// IsIdentityHeader reports whether a header, by its canonical key, gives a request an identity of
// its own.
func IsIdentityHeader(key string) bool {
	return key == "Authorization" || strings.HasPrefix(key, "Impersonate-")
}

// HasBearerToken reports that a header has a bearer token, as kube-apiserver reads it of a request
// that upgrades nothing. In an upgrade it also reads a WebSocket's subprotocol (W-119), which
// HTTP/2 does not have.
func HasBearerToken(h http.Header) bool {
	_, ok := auth.BearerToken(h)
	return ok
}

// hasCredentials reports that upstream reads a bearer token of the request, so that its answer
// shows whether the token is good. A preflight (OPTIONS) is answered ahead of authentication.
func (in *Inbound) hasCredentials() bool {
	if in.method == http.MethodOptions {
		return false
	}
	return HasBearerToken(in.Header) ||
		strings.EqualFold(in.upgrade, "websocket") && HasOwnCredentials(nil, in.Header["Sec-Websocket-Protocol"])
}
