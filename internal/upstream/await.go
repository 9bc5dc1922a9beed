package upstream

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilnet "k8s.io/apimachinery/pkg/util/net"

	"spillway/internal/upstream/transport"
)

// IsAway reports that an error says no more than that upstream cannot be used now: the same may
// work as soon as it is there. It is judged by its class, and what is of none counts as a word of
// upstream's, or about it, that waiting does not change: a refusal (4xx), a certificate that is not
// trusted, credentials that cannot be had, something that is no kube-apiserver.
//
// Upstream is away if its name does not resolve, since names come and go with what they name; if
// there is no connection, or none that lasts, a handshake included; without an answer in time, also
// of a credential plugin; and by an answer of the apiserver, or of a proxy in front of it, that it
// cannot serve now (5xx, 429).
func IsAway(err error) bool {
	var status apierrors.APIStatus
	var name *net.DNSError
	var op *net.OpError
	var missing *transport.CredentialError
	switch {
	case err == nil:
		return false
	case errors.As(err, &missing):
		return missing.Timeout()
	case errors.As(err, &status):
		code := status.Status().Code
		return code >= http.StatusInternalServerError || code == http.StatusTooManyRequests
	case errors.As(err, new(*net.AddrError)):
		return false // no address at all
	case errors.As(err, &name), errors.As(err, new(errNoHead)), errors.Is(err, context.DeadlineExceeded),
		errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return true
	case utilnet.IsTimeout(err), utilnet.IsProbableEOF(err), utilnet.IsHTTP2ConnectionLost(err):
		return true
	// net/http names neither
	case strings.Contains(err.Error(), "http2: server sent GOAWAY"),
		strings.Contains(err.Error(), "http: server closed idle connection"):
		return true
	}
	// TLS tells its alerts as if they were operations: those are words of the other end's.
	return errors.As(err, &op) && op.Op != "remote error" && op.Op != "local error"
}

// Await asks until upstream has answered, however long it is away, or until ctx ends, and returns
// how that came out: nil, ctx's cause, or an error that waiting does not mend. What an apiserver
// refuses that has only begun does not count (see isStarting). missed is called for each attempt
// that came to nothing, and in what time the next one follows at the latest; an upstream that is
// back is noticed sooner (see recoveryProbe).
func (c *Client) Await(ctx context.Context, ask func(context.Context) error,
	missed func(err error, again time.Duration)) error {
	pause := pauses(minPause, maxPause)
	var refused time.Time // since when it has done so; zero: it was away since
	for away := false; ; {
		err := ask(ctx)
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case IsAway(err):
			away, refused = true, time.Time{}
		default:
			if refused.IsZero() {
				refused = time.Now()
			}
			if recent := time.Since(refused) < refusalTimeout; !c.isStarting(ctx, away && recent, recent) {
				return err
			}
		}
		again := pause.Step()
		missed(err, again)
		c.recoveryProbe.wait(ctx, again)
	}
}

// answersInTime reports whether upstream answers /readyz in promptAnswerTimeout, with any status.
func (c *Client) answersInTime(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, promptAnswerTimeout)
	defer cancel()
	_, err := c.readiness(ctx)
	return err == nil
}

// isStarting reports whether upstream has only begun, so that it may allow in a moment what it has
// just refused: it says that it is not ready; or, since it has yet to read its rules, it does not
// even let us ask, which may be so for ever and is taken for that for a while. A refusal of our
// credentials is only if it was away before.
func (c *Client) isStarting(ctx context.Context, credentials, rules bool) bool {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	code, err := c.readiness(ctx)
	switch {
	case err != nil:
		return IsAway(err)
	case code == http.StatusForbidden:
		return rules
	case code == http.StatusUnauthorized:
		return credentials
	}
	return !isServing(code)
}

// IsUnready reports that upstream is away by now, or says that it is not ready.
func (c *Client) IsUnready(ctx context.Context) bool { return c.isStarting(ctx, false, false) }
