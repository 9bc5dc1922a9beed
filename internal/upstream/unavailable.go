package upstream

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilnet "k8s.io/apimachinery/pkg/util/net"

	"spillway/internal/upstream/transport"
)

// IsUnavailable reports that an error says no more than that upstream cannot be used now: the same
// request may succeed later. It goes by the class of the error:
//
//   - The name does not resolve: names come and go with what they name.
//   - There is no connection, or it was lost, a handshake included.
//   - There was no answer in time, also of a credential plugin.
//   - The API server, or a proxy in front of it, answers that it cannot serve now (5xx, 429).
//
// Any other error is one that waiting does not change: a refusal (4xx), a certificate that is not
// trusted, credentials that cannot be had, a server that is no kube-apiserver.
func IsUnavailable(err error) bool {
	var status apierrors.APIStatus
	var op *net.OpError
	var credentials *transport.CredentialError
	switch {
	case err == nil:
		return false
	case errors.As(err, &credentials):
		return credentials.Timeout()
	case errors.As(err, &status):
		code := status.Status().Code
		return code >= http.StatusInternalServerError || code == http.StatusTooManyRequests
	case errors.As(err, new(*net.AddrError)):
		return false // no address at all
	case errors.As(err, new(*net.DNSError)), errors.As(err, new(errNoHead)), errors.Is(err, context.DeadlineExceeded),
		errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return true
	case utilnet.IsTimeout(err), utilnet.IsProbableEOF(err), utilnet.IsHTTP2ConnectionLost(err):
		return true
	// net/http exports neither error.
	case strings.Contains(err.Error(), "http2: server sent GOAWAY"),
		strings.Contains(err.Error(), "http: server closed idle connection"):
		return true
	}
	// crypto/tls reports alerts as operations: they are answers of the other end.
	return errors.As(err, &op) && op.Op != "remote error" && op.Op != "local error"
}
