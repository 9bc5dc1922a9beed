package chaos

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// endpoint is where clients send requests, and with which token.
type endpoint struct{ url, token string }

// client sends requests over connections of its own.
type client struct {
	endpoint
	http     *http.Client
	metadata bool // alone, not whole objects
}

// newClient makes a client of HTTP/1.1 or of HTTP/2, which looks after its connections as client-go
// does, only sooner.
func newClient(e endpoint, http2 bool) *client {
	protocols := &http.Protocols{}
	protocols.SetHTTP1(!http2)
	protocols.SetHTTP2(http2)
	return &client{endpoint: e, http: &http.Client{Transport: &http.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, // the proxy makes itself a certificate
		Protocols:       protocols, TLSHandshakeTimeout: 5 * time.Second,
		HTTP2: &http.HTTP2Config{SendPingTimeout: 2 * time.Second, PingTimeout: 2 * time.Second},
	}}}
}

// get sends a GET; the body is the caller's.
func (c *client) get(ctx context.Context, path string, query url.Values) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, c.url+path+"?"+query.Encode(), nil)
	if err != nil {
		return nil, err
	}
	r.Header.Set("Authorization", "Bearer "+c.token)
	switch {
	case c.metadata && query.Has("watch"):
		r.Header.Set("Accept", "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1")
	case c.metadata:
		r.Header.Set("Accept", "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1")
	default:
		r.Header.Set("Accept", "application/json")
	}
	return c.http.Do(r)
}

// answered is a response read whole; what is not 200 is a note of a refusal, a body that breaks off
// one of a break.
func (c *client) answered(ctx context.Context, path string, query url.Values, into any) (refusal *note) {
	ctx, cancel := context.WithTimeout(ctx, readPatience)
	defer cancel()
	response, err := c.get(ctx, path, query)
	if err != nil {
		return &note{kind: "broken", text: err.Error()}
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return &note{kind: "broken", text: err.Error()}
	}
	if response.StatusCode == http.StatusOK {
		err = json.Unmarshal(body, into)
	}
	if err != nil || response.StatusCode != http.StatusOK {
		return &note{kind: "refused", code: response.StatusCode, text: fmt.Sprintf("%s?%s: %.200s %v", path, query.Encode(),
			body, err)}
	}
	return nil
}

// readPatience bounds one read.
const readPatience = 10 * time.Second

// collection is what is read of a list.
type collection struct {
	Metadata struct {
		ResourceVersion string `json:"resourceVersion"`
	} `json:"metadata"`
	Items []object `json:"items"`
}

// list reads a state.
func (c *client) list(ctx context.Context, path string, query url.Values, a ask) note {
	var l collection
	if refusal := c.answered(ctx, path, query, &l); refusal != nil {
		return *refusal
	}
	n := note{kind: "listed", state: map[string]version{}, asked: a, text: query.Encode()}
	n.version.rv, _ = strconv.ParseUint(l.Metadata.ResourceVersion, 10, 64)
	for _, o := range l.Items {
		n.state[o.key()] = o.version()
	}
	return n
}

// watcher follows what its view shows, as an informer does: it begins with a state, resumes
// whenever a stream ends, and lists again when a 410 requires it.
type watcher struct {
	*client
	journal   *receivedEvents
	path      string
	team      string
	watchList bool
	ask       func() ask

	// Guarded by mu.
	mu   sync.Mutex
	held map[string]version // nil: no state
	rv   uint64
}

func newWatcher(c *client, name string, r schema.GroupVersionResource, namespace, team string, watchList bool,
	ask func() ask) *watcher {
	return &watcher{
		client: c, path: collectionPath(r, namespace), team: team, watchList: watchList, ask: ask,
		journal: &receivedEvents{name: name, view: view{resource: r.Resource, namespace: namespace, team: team}},
	}
}

// state is what the client holds now; nil if nothing.
func (w *watcher) state() map[string]version {
	w.mu.Lock()
	defer w.mu.Unlock()
	return maps.Clone(w.held)
}

// version is the newest that the client has received; 0 if it holds nothing.
func (w *watcher) version() uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.rv
}

// holds is what the client has received, up to rv.
func (w *watcher) holds(state map[string]version, rv uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.held, w.rv = state, rv
}

func (w *watcher) query() url.Values {
	q := url.Values{}
	if w.team != "" {
		q.Set("labelSelector", teamLabel+"="+w.team)
	}
	return q
}

// run follows until ctx ends.
func (w *watcher) run(ctx context.Context) {
	defer w.http.CloseIdleConnections()
	for ctx.Err() == nil {
		begin := w.state() == nil
		var n note
		if begin && !w.watchList {
			if n = w.list(ctx, w.path, w.query(), w.ask()); n.kind == "listed" {
				w.holds(maps.Clone(n.state), n.version.rv)
			}
		} else {
			n = w.watch(ctx, begin)
		}
		if ctx.Err() != nil {
			return // what happens then is its own doing
		}
		w.journal.add(n)
		if n.code == 410 {
			w.holds(nil, 0)
		}
		if n.kind == "broken" || n.kind == "refused" || n.kind == "ERROR" {
			pause(ctx, 50*time.Millisecond+rand.N(200*time.Millisecond))
		}
	}
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// event is one of a stream.
type event struct {
	Type   string `json:"type"`
	Object object `json:"object"`
}

const initialEventsEnd = "k8s.io/initial-events-end"

// watch is one stream; it returns how it ended.
func (w *watcher) watch(ctx context.Context, begin bool) note {
	lasts := 4 + rand.IntN(3)
	q := w.query()
	q.Set("watch", "1")
	q.Set("allowWatchBookmarks", "true")
	q.Set("timeoutSeconds", strconv.Itoa(lasts))
	opened, asked := note{kind: "opened", initial: begin}, ask{}
	if begin {
		q.Set("sendInitialEvents", "true")
		q.Set("resourceVersionMatch", "NotOlderThan")
		asked = w.ask()
	} else {
		opened.version.rv = w.rv
		q.Set("resourceVersion", strconv.FormatUint(w.rv, 10))
	}
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, time.Duration(lasts)*time.Second+watchGrace)
	defer cancel()
	response, err := w.get(ctx, w.path, q)
	if err != nil {
		return note{kind: "broken", text: err.Error()}
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		body, _ := io.ReadAll(response.Body)
		return note{kind: "refused", code: response.StatusCode, text: fmt.Sprintf("%.200s", body)}
	}
	w.journal.add(opened)
	err = w.follow(json.NewDecoder(response.Body), begin, asked)
	var told *errorEvent
	switch {
	case errors.As(err, &told):
		return note{kind: "ERROR", code: told.code, text: told.message}
	case errors.Is(err, io.EOF):
		took := time.Since(began)
		return note{kind: "ended", early: took < time.Duration(lasts)*time.Second,
			text: fmt.Sprintf("after %v of %d s", took, lasts)}
	}
	return note{kind: "broken", text: err.Error()}
}

// watchGrace is how far beyond its timeoutSeconds a stream may last, over a bad link, before the
// client gives it up.
const watchGrace = 6 * time.Second

// errorEvent is an ERROR event.
type errorEvent struct {
	code    int
	message string
}

func (t *errorEvent) Error() string { return t.message }

// follow takes the events of a stream until it ends.
func (w *watcher) follow(stream *json.Decoder, begin bool, asked ask) error {
	fresh := map[string]version{}
	for {
		var e event
		if err := stream.Decode(&e); err != nil {
			return err
		}
		n := note{kind: e.Type, key: e.Object.key(), version: e.Object.version()}
		switch {
		case e.Type == "ERROR":
			return &errorEvent{e.Object.Code, e.Object.Message}
		case e.Type == "BOOKMARK" && begin && e.Object.Metadata.Annotations[initialEventsEnd] == "true":
			begin = false
			w.journal.add(note{kind: "listed", version: n.version, state: maps.Clone(fresh), asked: asked, initial: true})
			w.holds(fresh, n.version.rv)
		case e.Type == "BOOKMARK":
			n.key = ""
			w.journal.add(n)
			w.mu.Lock()
			w.rv = n.version.rv
			w.mu.Unlock()
		case begin:
			w.journal.add(n)
			fresh[n.key] = n.version
		default:
			w.journal.add(n)
			w.take(n)
		}
	}
}

// take is an event after the initial ones.
func (w *watcher) take(n note) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.rv = n.version.rv
	if n.kind == "DELETED" {
		delete(w.held, n.key)
	} else {
		w.held[n.key] = n.version
	}
}
