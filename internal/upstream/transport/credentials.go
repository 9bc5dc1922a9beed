package transport

import (
	"net/http"

	utilnet "k8s.io/apimachinery/pkg/util/net"

	"spillway/internal/rotation"
)

// bearer adds a token, as the file has it now, to requests that have no Authorization.
type bearer struct {
	token *rotation.Value[string]
	next  http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (b *bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Header.Get("Authorization") == "" {
		r = utilnet.CloneRequest(r)
		r.Header.Set("Authorization", "Bearer "+b.token.Get())
	}
	return b.next.RoundTrip(r)
}

// WrappedRoundTripper implements utilnet.RoundTripperWrapper.
func (b *bearer) WrappedRoundTripper() http.RoundTripper { return b.next }

// reloadingTransport looks at the files of the credentials when upstream does not accept these, so
// that the next request shows their present content. It sends no request again: only the sender
// knows whether that is safe.
type reloadingTransport struct {
	refresh func() // looks at the files
	next    http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (t *reloadingTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	own := r.Header.Get("Authorization") == ""
	response, err := t.next.RoundTrip(r)
	if own && err == nil && response.StatusCode == http.StatusUnauthorized {
		t.refresh()
	}
	return response, err
}

// WrappedRoundTripper implements utilnet.RoundTripperWrapper.
func (t *reloadingTransport) WrappedRoundTripper() http.RoundTripper { return t.next }
