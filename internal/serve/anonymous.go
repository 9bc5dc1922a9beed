package serve

import (
	"net/http"
	"strings"
)

// anonymous reports that nothing in a request can name its sender, so that kube-apiserver takes it for
// system:anonymous: no certificate, and no bearer token where one is looked for.
func (f Front) anonymous(r *http.Request) bool {
	if f.AnswerAll || f.Identity == IdentitySelf || r.TLS != nil && len(r.TLS.PeerCertificates) > 0 {
		return false
	}
	return !bearsToken(r.Header)
}

// bearsToken reports that a header has a bearer token, as kube-apiserver reads it: of the first Authorization, by the
// scheme in any case, up to the next blank; or a WebSocket's subprotocol.
func bearsToken(h http.Header) bool {
	parts := strings.SplitN(strings.TrimSpace(h.Get("Authorization")), " ", 3)
	if len(parts) > 1 && strings.EqualFold(parts[0], "bearer") && parts[1] != "" {
		return true
	}
	for _, p := range h["Sec-Websocket-Protocol"] {
		if strings.Contains(p, webSocketBearer) {
			return true
		}
	}
	return false
}

// vouches reports that an answer of upstream's shows that it knows the bearer of the request's
// token: it refuses a bad one with 401 before it looks at anything else. What something in between
// may have answered shows nothing.
func vouches(status int) bool {
	switch status {
	case http.StatusForbidden, http.StatusNotFound, http.StatusConflict, http.StatusGone, http.StatusUnprocessableEntity:
		return true
	}
	return status >= http.StatusOK && status < http.StatusMultipleChoices
}
