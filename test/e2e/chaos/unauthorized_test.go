package chaos

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"
)

// unauthorizedClient is a user without rights. It requests everything, and must not receive a byte
// of an object, whatever breaks.
type unauthorizedClient struct {
	*client
	journal *receivedEvents // of what befell it other than being denied
	asked   atomic.Int64
	denied  atomic.Int64
}

func newStranger(c *client, name string) *unauthorizedClient {
	return &unauthorizedClient{client: c, journal: &receivedEvents{name: name}}
}

func (s *unauthorizedClient) run(ctx context.Context) {
	defer s.http.CloseIdleConnections()
	for ctx.Err() == nil {
		path, q := collectionPath(resources[rand.IntN(len(resources))], namespaces[rand.IntN(len(namespaces))]), url.Values{}
		switch rand.IntN(4) {
		case 0:
			path += "/o1"
		case 1:
			q.Set("resourceVersion", "0")
		case 2:
			q.Set("watch", "1")
			q.Set("timeoutSeconds", "1")
		}
		n := s.try(ctx, path, q)
		if ctx.Err() != nil {
			return // what happens then is its own doing
		}
		s.asked.Add(1)
		if n.kind == "refused" && n.code == http.StatusForbidden {
			s.denied.Add(1)
		} else {
			s.journal.add(n)
		}
		pause(ctx, 100*time.Millisecond)
	}
}

// try requests something that it has no right to.
func (s *unauthorizedClient) try(ctx context.Context, path string, query url.Values) note {
	ctx, cancel := context.WithTimeout(ctx, readPatience)
	defer cancel()
	response, err := s.get(ctx, path, query)
	if err != nil {
		return note{kind: "broken", text: err.Error()}
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	text := fmt.Sprintf("%s?%s: %.200s", path, query.Encode(), body)
	switch {
	case response.StatusCode < http.StatusBadRequest || bytes.Contains(body, []byte(markAnnotation)):
		return note{kind: "shown", code: response.StatusCode, text: text}
	case err != nil:
		return note{kind: "broken", text: err.Error()}
	}
	return note{kind: "refused", code: response.StatusCode, text: text}
}
