package upstream

import (
	"context"
	"net/http"
	"time"
)

// Await calls ask until upstream has answered, however long it is unavailable, or until ctx ends.
// It returns nil, ctx's cause, or an error that waiting does not change. A refusal by an API server
// that is still starting counts as none (see startPhase). onMiss is called after each attempt
// without a result, with the time until the next one at the latest: an upstream that serves again
// is noticed sooner (see recoveryProbe).
func (c *Client) Await(ctx context.Context, ask func(context.Context) error,
	onMiss func(err error, next time.Duration)) error {
	pause := pauses(minPause, maxPause)
	var refusedSince time.Time // zero: the last attempt was not refused
	for wasUnavailable := false; ; {
		err := ask(ctx)
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case IsUnavailable(err):
			wasUnavailable, refusedSince = true, time.Time{}
		default:
			if refusedSince.IsZero() {
				refusedSince = time.Now()
			}
			if !c.mayStillAllow(ctx, refusedSince, wasUnavailable) {
				return err
			}
		}
		next := pause.Step()
		onMiss(err, next)
		c.recoveryProbe.wait(ctx, next)
	}
}

// mayStillAllow reports whether waiting may change a refusal, because upstream is starting. It is
// taken for starting for a while if it does not say.
func (c *Client) mayStillAllow(ctx context.Context, refusedSince time.Time, wasUnavailable bool) bool {
	isRecent := time.Since(refusedSince) < refusalTimeout
	switch c.probeStartPhase(ctx) {
	case starting:
		return true
	case rulesUnread:
		return isRecent
	case credentialsUnread:
		return isRecent && wasUnavailable
	}
	return false
}

// startPhase is how far upstream is in its start, as far as /readyz tells.
type startPhase int

const (
	started           startPhase = iota // it is ready: its refusals stay
	starting                            // it says that it is not ready, or is unavailable
	rulesUnread                         // it answers 403: it has yet to read its rules, or has none for the proxy
	credentialsUnread                   // it answers 401: it has yet to read its users, or the proxy is none of them
)

func (c *Client) probeStartPhase(ctx context.Context) startPhase {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	code, err := c.readiness(ctx)
	switch {
	case IsUnavailable(err), err == nil && !isServing(code):
		return starting
	case code == http.StatusForbidden:
		return rulesUnread
	case code == http.StatusUnauthorized:
		return credentialsUnread
	}
	return started
}

// IsUnready reports that upstream is unavailable by now, or says that it is not ready.
func (c *Client) IsUnready(ctx context.Context) bool { return c.probeStartPhase(ctx) == starting }
