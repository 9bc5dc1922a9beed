package serve

import (
	"net/http"

	"spillway/internal/passthrough"
)

// anonymous reports that nothing in a request can name its sender, so that kube-apiserver takes it
// for system:anonymous: no certificate, and no bearer token where one is looked for.
func (f Front) anonymous(r *http.Request) bool {
	if f.AnswerAll || f.Identity == passthrough.IdentitySelf || r.TLS != nil && len(r.TLS.PeerCertificates) > 0 {
		return false
	}
	return !passthrough.BearsToken(r.Header)
}
