package serve

import (
	"net/http"

	"spillway/internal/apistatus"
	"spillway/internal/clientconn"
	"spillway/internal/h2"
	"spillway/internal/http1"
	"spillway/internal/passthrough"
)

// What a connection of HTTP/2 may hold of its own; see h2.Bounds.
const (
	http2HeadBytes     = 32 << 10
	http2UnprovenBytes = 32 << 10
	http2ProvenBytes   = 256 << 10
	http2HandlersLimit = 4
)

// http2Bounds are what each connection of HTTP/2 to a listener may hold: of a client with a good
// certificate, and of any other.
type http2Bounds struct{ certified, other *h2.Bounds }

func (b http2Bounds) boundsFor(isCertified bool) *h2.Bounds {
	if isCertified {
		return b.certified
	}
	return b.other
}

func (h *http2Server) newBounds(listener ListenerConfig) http2Bounds {
	return http2Bounds{certified: h.newConnBounds(listener, true), other: h.newConnBounds(listener, false)}
}

func (h *http2Server) newConnBounds(listener ListenerConfig, isCertified bool) *h2.Bounds {
	pool := h.server.opts.Limiter.HeaderBudget()
	return &h2.Bounds{
		Head: http2HeadBytes, Unproven: http2UnprovenBytes, Proven: http2ProvenBytes, Handlers: http2HandlersLimit,
		Arrival: h.server.arrivals.Head, Large: http1.HeadArrivalTimeout,
		Reserve:     pool.Take,
		Release:     pool.Give,
		Credentials: func(r *http.Request) bool { return !listener.isAnonymous(r, isCertified) },
		Refuse: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			out := clientconn.NewPacedWriter(w.(*h2.Response), nil, h.server.opts.StallTimeout)
			defer out.Close()
			out.EndsConnection = func(int) bool { return listener.isAnonymous(r, isCertified) }
			apistatus.Failure(apistatus.HeadTooLarge()).Write(clientconn.NetResponder{Writer: out, RequestFields: r.Header})
		}),
	}
}

// isAnonymous reports that nothing in a request can name its sender, so that kube-apiserver takes
// it for system:anonymous: no certificate, and no bearer token where kube-apiserver looks for one.
func (f ListenerConfig) isAnonymous(r *http.Request, isCertified bool) bool {
	if f.AnswerAll || f.Identity == passthrough.IdentitySelf || isCertified {
		return false
	}
	return !passthrough.HasBearerToken(r.Header)
}
