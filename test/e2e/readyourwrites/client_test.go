package readyourwrites

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"time"

	"k8s.io/client-go/rest"
)

// client sends requests about the ConfigMaps of one namespace and reads no more of the answers than
// versions.
type client struct {
	base string
	http *http.Client
}

func newClient(config *rest.Config) (*client, error) {
	config = rest.CopyConfig(config)
	config.NextProtos = []string{"http/1.1"}
	h, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	return &client{base: config.Host, http: h}, nil
}

// meta is what is read of an object.
type meta struct {
	Name            string            `json:"name"`
	ResourceVersion string            `json:"resourceVersion"`
	Annotations     map[string]string `json:"annotations"`
}

// versions are a namespace's objects: resourceVersions by name.
type versions map[string]string

func clone(v versions) versions {
	all := versions{}
	for name, version := range v {
		all[name] = version
	}
	return all
}

// answer is what a read said: the objects, the resourceVersion at which it said so, and whether the
// proxy said it by itself.
type answer struct {
	objects versions
	rv      uint64
	own     bool
}

func maps(namespace string) string { return "/api/v1/namespaces/" + namespace + "/configmaps" }

// do sends a request and returns the answer if it is one of the codes.
func (c *client) do(ctx context.Context, method, target string, body []byte, codes ...int) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, method, c.base+target, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Accept", "application/json")
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("User-Agent", "readyourwrites")
	resp, err := c.http.Do(r)
	if err != nil {
		return nil, err
	}
	for _, code := range codes {
		if resp.StatusCode == code {
			return resp, nil
		}
	}
	text, _ := io.ReadAll(resp.Body)
	resp.Body.Close()
	return nil, fmt.Errorf("%s %s: %s: %s", method, target, resp.Status, text)
}

// put creates or replaces an object and returns its new version.
func (c *client) put(ctx context.Context, namespace, name, value string, create bool) (string, error) {
	method, target, code := http.MethodPut, maps(namespace)+"/"+name, http.StatusOK
	if create {
		method, target, code = http.MethodPost, maps(namespace), http.StatusCreated
	}
	resp, err := c.do(ctx, method, target, fmt.Appendf(nil, `{"metadata":{"name":%q},"data":{"value":%q}}`, name, value),
		code)
	if err != nil {
		return "", err
	}
	var o struct{ Metadata meta }
	err = decode(resp, &o)
	return o.Metadata.ResourceVersion, err
}

// delete deletes an object.
func (c *client) delete(ctx context.Context, namespace, name string) error {
	resp, err := c.do(ctx, http.MethodDelete, maps(namespace)+"/"+name, nil, http.StatusOK)
	if err != nil {
		return err
	}
	return decode(resp, &struct{}{})
}

// list reads the namespace as of now.
func (c *client) list(ctx context.Context, namespace string) (answer, error) {
	resp, err := c.do(ctx, http.MethodGet, maps(namespace), nil, http.StatusOK)
	if err != nil {
		return answer{}, err
	}
	var l struct {
		Metadata meta
		Items    []struct{ Metadata meta }
	}
	a := answer{objects: versions{}, own: ownAnswer(resp)}
	if err := decode(resp, &l); err != nil {
		return a, err
	}
	for _, o := range l.Items {
		a.objects[o.Metadata.Name] = o.Metadata.ResourceVersion
	}
	a.rv, err = strconv.ParseUint(l.Metadata.ResourceVersion, 10, 64)
	return a, err
}

// get reads one object as of now; it is not among the answer's if it does not exist.
func (c *client) get(ctx context.Context, namespace, name string) (answer, error) {
	resp, err := c.do(ctx, http.MethodGet, maps(namespace)+"/"+name, nil, http.StatusOK, http.StatusNotFound)
	if err != nil {
		return answer{}, err
	}
	var o struct{ Metadata meta }
	a := answer{objects: versions{}, own: ownAnswer(resp)}
	if err := decode(resp, &o); err != nil || resp.StatusCode == http.StatusNotFound {
		return a, err
	}
	a.objects[name] = o.Metadata.ResourceVersion
	return a, nil
}

// errUnfinished is a watch that ended before it said that its initial events are complete, or that
// was to be tried later: its client tries again.
var errUnfinished = errors.New("the watch ended before its initial events did")

// errLost is a watch that does not show each write at its head, once and in its order.
var errLost = errors.New("an event is lost")

// watched is what a watch-list shows: what it had at the end of its initial events, and what it had
// when a version had come.
type watched struct {
	initial answer
	later   versions
}

// watchList reads the namespace as of now, as informers do, and goes on until it has the versions
// that headed returns, each of them and in their order. headed is called when the head is there.
func (c *client) watchList(ctx context.Context, namespace string, headed func() ([]string, error)) (watched, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	target := maps(namespace) +
		"?watch=true&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&timeoutSeconds=60"
	resp, err := c.do(ctx, http.MethodGet, target, nil, http.StatusOK, http.StatusTooManyRequests)
	if err != nil {
		return watched{}, err
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusTooManyRequests { // upstream proves nothing, and many watches pass through
		seconds, err := strconv.Atoi(resp.Header.Get("Retry-After"))
		if err != nil {
			return watched{}, fmt.Errorf("Retry-After: %w", err)
		}
		time.Sleep(time.Duration(seconds) * time.Second)
		return watched{}, errUnfinished
	}
	wanted, err := headed()
	if err != nil {
		return watched{}, err
	}
	w := watched{initial: answer{own: ownAnswer(resp)}, later: versions{}}
	for in := bufio.NewReader(resp.Body); len(wanted) > 0 || w.initial.objects == nil; {
		line, err := in.ReadBytes('\n')
		switch {
		case err == io.EOF && w.initial.objects != nil:
			return w, fmt.Errorf("%w: the watch ended without %s", errLost, wanted)
		case err == io.EOF:
			return w, errUnfinished
		case err != nil:
			return w, err
		}
		var e event
		if err := json.Unmarshal(line, &e); err != nil {
			return w, fmt.Errorf("%w: %.300s", err, line)
		}
		if e.ends() {
			w.initial.objects = clone(w.later)
			if w.initial.rv, err = strconv.ParseUint(e.Object.Metadata.ResourceVersion, 10, 64); err != nil {
				return w, err
			}
			continue
		}
		if !w.later.apply(e) {
			return w, fmt.Errorf("%w: after %v came %s", errLost, w.later, line)
		}
		switch slices.Index(wanted, e.Object.Metadata.ResourceVersion) {
		case -1:
		case 0:
			wanted = wanted[1:]
		default:
			return w, fmt.Errorf("%w: %s came, of %s", errLost, line, wanted)
		}
	}
	return w, nil
}

// event is what is read of an event.
type event struct {
	Type   string
	Object struct{ Metadata meta }
}

// ends reports the bookmark at the end of the initial events.
func (e event) ends() bool {
	return e.Type == "BOOKMARK" && e.Object.Metadata.Annotations["k8s.io/initial-events-end"] == "true"
}

// apply applies an event, and reports whether one of its type may come for an object that is there,
// or is not.
func (v versions) apply(e event) bool {
	o := e.Object.Metadata
	_, has := v[o.Name]
	switch e.Type {
	case "BOOKMARK":
		return true
	case "ADDED", "MODIFIED":
		v[o.Name] = o.ResourceVersion
		return has == (e.Type == "MODIFIED")
	case "DELETED":
		delete(v, o.Name)
		return has
	}
	return false
}

// ownAnswer reports that no flow schema of the API server had a part in the answer: the proxy gave
// it from memory.
func ownAnswer(resp *http.Response) bool {
	return resp.Header.Get("X-Kubernetes-Pf-Flowschema-Uid") == ""
}

// decode reads an answer to its end.
func decode(resp *http.Response, into any) error {
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, into); err != nil {
		return fmt.Errorf("%w: %.300s", err, text)
	}
	return nil
}
