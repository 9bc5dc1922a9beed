package upstream

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"
	"time"
)

// contact knows since when upstream has answered no request under the proxy's own credentials.
type contact struct {
	silence atomic.Pointer[silence] // nil: it has answered the last one
}

// silence is a time without an answer.
type silence struct {
	since time.Time
	cause string // of the last request without one
}

// recordResult takes the result of a request. An answer ends the silence. A 5xx in JSON is the API
// server's own, and leaves the silence as it is; any other comes from a proxy in front of an API
// server that does not answer.
func (c *contact) recordResult(resp *http.Response, err error) {
	switch {
	case err == nil && resp.StatusCode < http.StatusInternalServerError:
		c.silence.Store(nil)
	case err == nil && !isJSON(resp):
		c.recordSilence(resp.Status)
	case err != nil && !errors.Is(err, context.Canceled):
		c.recordSilence(err.Error())
	}
}

// recordSilence notes why a request has no answer.
func (c *contact) recordSilence(cause string) {
	for {
		before := c.silence.Load()
		next := &silence{time.Now(), cause}
		if before != nil {
			next.since = before.since
		}
		if c.silence.CompareAndSwap(before, next) {
			return
		}
	}
}

func isJSON(resp *http.Response) bool {
	return resp.Header.Get("Content-Type") == "application/json"
}

// SilentSince is since when upstream has not answered, or received no request because there are no
// credentials; zero: it has answered the last one.
func (c *Client) SilentSince() time.Time {
	since, _ := c.transports.CredentialTrouble()
	if silent := c.contact.silence.Load(); silent != nil && (since.IsZero() || silent.since.Before(since)) {
		return silent.since
	}
	return since
}

// SilenceCause is why the last request without an answer has none; "": SilentSince is zero.
func (c *Client) SilenceCause() string {
	if silent := c.contact.silence.Load(); silent != nil {
		return silent.cause
	}
	if err := c.CredentialTrouble(); err != nil {
		return err.Error()
	}
	return ""
}

// CredentialTrouble is why the proxy's own credentials cannot be had at present; nil: they can, or
// nothing is known of it.
func (c *Client) CredentialTrouble() error {
	_, err := c.transports.CredentialTrouble()
	return err
}
