// Package check tests an installation as a client: whether Spillway is reachable, trusted and
// passes requests through, knows the client's user, and serves from memory. It sends requests that
// any client may send, and gets nothing that another client would not get.
//
// Invariant: each check prints one line, also after another has failed, and a failure has a remedy.
// Only if the server's name cannot be resolved, the first check is the last one.
package check

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"spillway/internal/status"
)

// Checker runs the checks.
type Checker struct {
	Server Endpoint
	Health *Endpoint // the metrics listener; nil: it is not checked

	// Patience is how long connections may be refused at first; 0: not at all. A Service refuses
	// them until each node knows of its pods, which is a moment after they are ready.
	Patience time.Duration

	marksOwnAnswers bool // the API server marks its own answers: their header has flowSchemaHeader
	hasNamedFaults  bool // Health named what is wrong
}

// check is one request, and what to print of a good answer.
type check struct {
	name string
	run  func(context.Context) (result string, err error)
}

// Run runs all checks: health and readiness; with a token or a resource, the version of the API
// server; with a token, its user; with Health, what the proxy says of itself; a list of each
// resource from memory. It writes a line for each to out. The error names the first that failed.
func (c *Checker) Run(ctx context.Context, resources []string, out io.Writer) error {
	checks := c.checks(resources)
	failed, first := 0, error(nil)
	for _, one := range checks {
		result, cause := one.run(ctx)
		if cause == nil {
			fmt.Fprintf(out, "ok      %s: %s\n", one.name, status.Printable(result))
			continue
		}
		err := fmt.Errorf("%s: %s", one.name, status.Printable(cause.Error()))
		fmt.Fprintf(out, "FAILED  %v\n", err)
		if failed++; first == nil {
			first = err
		}
		if unresolved := (*lookupError)(nil); errors.As(cause, &unresolved) {
			fmt.Fprintln(out, "        so no other request is sent")
			break
		}
	}
	if failed > 0 {
		return fmt.Errorf("%s: %d of %d checks failed, first %w", c.Server.Base, failed, len(checks), first)
	}
	return nil
}

func (c *Checker) checks(resources []string) []check {
	all := []check{{"/livez", c.awaitLive}, {"/readyz", func(ctx context.Context) (string, error) {
		return c.probe(ctx, "/readyz")
	}}}
	if c.Server.Token != "" || len(resources) > 0 {
		all = append(all, check{"/version", c.readVersion})
	}
	if c.Server.Token != "" {
		all = append(all, check{"user", c.readUser})
	}
	if c.Health != nil { // after requests that may cause a review, whose outcome it has
		all = append(all, check{"/readyz?verbose", c.readHealth})
	}
	for _, resource := range resources {
		all = append(all, check{"LIST " + resource, func(ctx context.Context) (string, error) {
			return c.list(ctx, resource)
		}})
	}
	return all
}

func (c *Checker) probe(ctx context.Context, path string) (string, error) {
	_, err := c.get(ctx, path, nil)
	return "200", err
}

// refusedPause is the time between two connections while they are refused.
const refusedPause = 200 * time.Millisecond

// awaitLive probes /livez, and repeats that while connections are refused, for Patience.
func (c *Checker) awaitLive(ctx context.Context) (string, error) {
	for began := time.Now(); ; {
		result, err := c.probe(ctx, "/livez")
		if !errors.Is(err, syscall.ECONNREFUSED) || time.Since(began) >= c.Patience {
			return result, err
		}
		select {
		case <-time.After(refusedPause):
		case <-ctx.Done():
			return result, err
		}
	}
}

func (c *Checker) readVersion(ctx context.Context) (string, error) {
	var v struct{ GitVersion string }
	header, err := c.get(ctx, "/version", &v)
	if err != nil {
		return "", err
	}
	c.marksOwnAnswers = header.Get(flowSchemaHeader) != ""
	if v.GitVersion == "" {
		return "", errors.New("the answer names no version: is --server a spillway?")
	}
	return v.GitVersion, nil
}

func (c *Checker) readUser(ctx context.Context) (string, error) {
	const path = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
	const review = `{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}`
	var r struct {
		Status struct{ UserInfo struct{ Username string } }
	}
	if _, err := c.do(ctx, http.MethodPost, path, review, &r); err != nil {
		return "", err
	}
	if r.Status.UserInfo.Username == "" {
		return "", errors.New("the answer names no user: is --server a spillway?")
	}
	return r.Status.UserInfo.Username, nil
}

// readHealth reads what the proxy says of itself. A fault that does not end by itself is an error:
// a failed check, a mirror that upstream refuses, reviews that upstream does not answer.
func (c *Checker) readHealth(ctx context.Context) (string, error) {
	a, err := c.Health.send(ctx, http.MethodGet, "/readyz?verbose", "")
	if err != nil {
		return "", err
	}
	if !strings.Contains(string(a.text), "[+]") {
		return "", fmt.Errorf("%d, and no list of checks: is --health the metrics listener of a spillway?", a.code)
	}
	if faults := faultLine.FindAllString(string(a.text), -1); len(faults) > 0 {
		c.hasNamedFaults = true
		return "", errors.New(strings.Join(faults, "; "))
	}
	return "nothing is wrong", nil
}

// faultLine is a line of /readyz?verbose about a fault that does not end by itself.
var faultLine = regexp.MustCompile(`(?m)^\[-\].*|^\[!\](reviews |mirror [^ ]+ refused ).*`)

// cheapQuery asks for a state of any age, which takes no more than memory, and selects a name that
// most likely nothing has. So the list costs as little in a large cluster as in a small one.
const cheapQuery = "?resourceVersion=0&fieldSelector=metadata.name%3Dspillway-check"

// flowSchemaHeader is in the API server's own answers, if it has priority and fairness, and in no
// answer that was made from memory.
const flowSchemaHeader = "X-Kubernetes-Pf-Flowschema-Uid"

// list lists a resource, which must come from memory.
func (c *Checker) list(ctx context.Context, resource string) (string, error) {
	path, err := c.pathOf(ctx, resource)
	if err != nil {
		return "", err
	}
	var l struct {
		Metadata struct{ ResourceVersion string }
	}
	header, err := c.get(ctx, path+cheapQuery, &l)
	isUpstreams := header.Get(flowSchemaHeader) != ""
	switch {
	case err != nil:
		return "", err
	case l.Metadata.ResourceVersion == "":
		return "", errors.New("the answer is no list: is --server a spillway?")
	case isUpstreams && c.hasNamedFaults:
		return "", errors.New("not from memory but from the API server: /readyz?verbose, above, says why")
	case isUpstreams:
		return "", fmt.Errorf("not from memory but from the API server: have --resources of that spillway name %s, let it "+
			"get, list and watch them, and let it send reviews (system:auth-delegator); /readyz?verbose on its "+
			"--metrics-listen says which of these is missing", resource)
	case !c.marksOwnAnswers:
		return "at resourceVersion " + l.Metadata.ResourceVersion + "; whether from memory is unknown, because the API " +
			"server marks none of its own answers (it is without priority and fairness)", nil
	}
	return "from memory, at resourceVersion " + l.Metadata.ResourceVersion, nil
}

// bareVersion matches versions of APIs, and no groups.
var bareVersion = regexp.MustCompile(`^v[0-9]+((alpha|beta)[0-9]+)?$`)

// pathOf is where a resource[.version][.group] is listed. If it names no version, that is the one
// that the API server prefers.
func (c *Checker) pathOf(ctx context.Context, resource string) (string, error) {
	versioned, plain := schema.ParseResourceArg(resource)
	if versioned == nil || !bareVersion.MatchString(versioned.Version) {
		versioned = &schema.GroupVersionResource{Group: plain.Group, Resource: plain.Resource}
	}
	if versioned.Group == "" {
		return "/api/v1/" + versioned.Resource, nil
	}
	if versioned.Version == "" {
		var g struct{ PreferredVersion struct{ Version string } }
		if _, err := c.get(ctx, "/apis/"+versioned.Group, &g); err != nil {
			return "", err
		}
		versioned.Version = g.PreferredVersion.Version
	}
	return "/apis/" + versioned.Group + "/" + versioned.Version + "/" + versioned.Resource, nil
}

func (c *Checker) get(ctx context.Context, path string, into any) (http.Header, error) {
	return c.do(ctx, http.MethodGet, path, "", into)
}

// do sends a request, and decodes the answer into into; nil: its text does not matter. An answer
// that is no success is an error.
func (c *Checker) do(ctx context.Context, method, path, body string, into any) (http.Header, error) {
	a, err := c.Server.send(ctx, method, path, body)
	if err != nil {
		return nil, err
	}
	if err := a.check(); err != nil {
		return nil, err
	}
	if into == nil {
		return a.header, nil
	}
	return a.header, a.decode(into)
}
