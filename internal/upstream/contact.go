package upstream

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"
	"time"
)

// contact knows since when upstream has answered no request under the proxy's own credentials.
type contact struct{ silentSince atomic.Pointer[time.Time] }

// recordResult takes the result of a request. An answer ends the silence. A 5xx in JSON is the API
// server's own, and leaves the silence as it is; any other comes from a proxy in front of an API
// server that does not answer.
func (c *contact) recordResult(resp *http.Response, err error) {
	switch {
	case err == nil && resp.StatusCode < http.StatusInternalServerError:
		c.silentSince.Store(nil)
	case err != nil && !errors.Is(err, context.Canceled), err == nil && !isJSON(resp):
		c.silentSince.CompareAndSwap(nil, new(time.Now()))
	}
}

func isJSON(resp *http.Response) bool {
	return resp.Header.Get("Content-Type") == "application/json"
}

// SilentSince is since when upstream has not answered, or received no request because there are no
// credentials; zero: it has answered the last one.
func (c *Client) SilentSince() time.Time {
	since, _ := c.transports.CredentialTrouble()
	if silent := c.contact.silentSince.Load(); silent != nil && (since.IsZero() || silent.Before(since)) {
		return *silent
	}
	return since
}

// CredentialTrouble is why the proxy's own credentials cannot be had at present; nil: they can, or
// nothing is known of it.
func (c *Client) CredentialTrouble() error {
	_, err := c.transports.CredentialTrouble()
	return err
}
