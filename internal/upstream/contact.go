package upstream

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"
	"time"
)

// contact knows since when upstream has not answered any request under the proxy's own credentials.
type contact struct{ silent atomic.Pointer[time.Time] }

// note hears how a request came out. A 5xx may be of what stands before an apiserver that is away,
// so that it says nothing.
func (c *contact) note(resp *http.Response, err error) {
	switch {
	case err == nil && resp.StatusCode < http.StatusInternalServerError:
		c.silent.Store(nil)
	case err != nil && !errors.Is(err, context.Canceled), err == nil && !jsonAnswer(resp):
		c.silent.CompareAndSwap(nil, new(time.Now()))
	}
}

func jsonAnswer(resp *http.Response) bool {
	return resp.Header.Get("Content-Type") == "application/json"
}

// SilentSince is since when upstream has not answered; zero: its last answer came.
func (c *Client) SilentSince() time.Time {
	if since := c.contact.silent.Load(); since != nil {
		return *since
	}
	return time.Time{}
}
