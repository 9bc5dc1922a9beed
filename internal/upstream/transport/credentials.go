package transport

import (
	"net/http"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"
)

// bearer adds a token, as the file has it now, to requests that have no Authorization.
type bearer struct {
	factory *Factory
	next    http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (b *bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Header.Get("Authorization") == "" {
		r = utilnet.CloneRequest(r)
		r.Header.Set("Authorization", "Bearer "+b.factory.token.Get())
	}
	return b.next.RoundTrip(r)
}

// WrappedRoundTripper implements utilnet.RoundTripperWrapper.
func (b *bearer) WrappedRoundTripper() http.RoundTripper { return b.next }

// refusedInterval is how often credentials that are not accepted have their files looked at.
const refusedInterval = time.Second

// reloadingTransport looks at the files of the credentials when upstream does not accept these, so
// that the next request has what is there by now. It sends none again: whether that is safe, its
// sender knows.
type reloadingTransport struct {
	factory *Factory
	next    http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (n *reloadingTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	own := r.Header.Get("Authorization") == ""
	response, err := n.next.RoundTrip(r)
	if own && err == nil && response.StatusCode == http.StatusUnauthorized {
		n.factory.refreshCredentials()
	}
	return response, err
}

// WrappedRoundTripper implements utilnet.RoundTripperWrapper.
func (n *reloadingTransport) WrappedRoundTripper() http.RoundTripper { return n.next }

func (f *Factory) refreshCredentials() {
	if f.source != nil {
		f.source.Recent(refusedInterval)
	}
	if f.token != nil {
		f.token.Recent(refusedInterval)
	}
	if f.pair != nil {
		f.pair.Recent(refusedInterval)
	}
}
