package upstream

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"spillway/internal/upstream/transport"
)

// Check reports in one line why upstream cannot be used; nil if it answers. The line wraps its
// cause, for IsUnavailable.
func (c *Client) Check(ctx context.Context) error {
	_, err := c.Version(ctx)
	var op *net.OpError
	var dns *net.DNSError
	host := c.base.Host
	switch {
	case err == nil:
		return nil
	case apierrors.IsUnauthorized(err):
		return c.ExplainUnauthorized(err)
	case apierrors.IsForbidden(err):
		return explain(err, "API server %s: the proxy may not read /version (403): "+
			"bind its user to system:public-info-viewer", host)
	case errors.As(err, new(apierrors.APIStatus)):
		return explain(err, "API server %s does not answer /version: %s", host, transport.OneLine(err))
	case errors.As(err, &dns):
		return explain(err, "API server %s is unknown: %s; is the server in the kubeconfig right?", host, dns.Err)
	case errors.As(err, &op):
		return explain(err, "API server %s cannot be reached: %s; is it running, and the server in the kubeconfig right?",
			host, op.Err)
	}
	return explain(err, "API server %s: %s", host, transport.OneLine(withoutURL(err)))
}

// ExplainUnauthorized names the credentials in an error that says that upstream does not accept
// them. It returns other errors as they are.
func (c *Client) ExplainUnauthorized(err error) error {
	if !apierrors.IsUnauthorized(err) {
		return err
	}
	return explain(err, "API server %s does not accept the credentials of %s (401): renew them", c.base.Host,
		c.transports.Credentials())
}

// describedError is an error in other words, which say what to do.
type describedError struct {
	error
	text string
}

func explain(err error, format string, args ...any) error {
	return describedError{err, fmt.Sprintf(format, args...)}
}

func (e describedError) Error() string { return e.text }

func (e describedError) Unwrap() error { return e.error }

// withoutURL leaves out the request with which net/http begins every error.
func withoutURL(err error) error {
	var e *url.Error
	if errors.As(err, &e) {
		return e.Err
	}
	return err
}
