package check

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// probe requests a path whose answer matters by its code alone.
func (e *Endpoint) probe(ctx context.Context, path string) (string, error) {
	_, err := e.get(ctx, path, nil)
	return "200", err
}

func (e *Endpoint) readReady(ctx context.Context) (string, error) { return e.probe(ctx, "/readyz") }

// readUser reads which user sends the requests.
func (e *Endpoint) readUser(ctx context.Context) (string, error) {
	const path = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
	const review = `{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}`
	var r struct {
		Status struct{ UserInfo struct{ Username string } }
	}
	if _, err := e.do(ctx, http.MethodPost, path, review, &r); err != nil {
		return "", err
	}
	if r.Status.UserInfo.Username == "" {
		return "", errors.New("the answer names no user: is --server a spillway?")
	}
	return r.Status.UserInfo.Username, nil
}

// faultLine is a line of /readyz?verbose about a fault that does not end by itself.
var faultLine = regexp.MustCompile(`(?m)^\[-\].*|^\[!\](reviews |mirror [^ ]+ refused ).*`)

// readFaults reads from a metrics listener what does not end by itself.
func (e *Endpoint) readFaults(ctx context.Context) ([]string, error) {
	a, err := e.send(ctx, http.MethodGet, "/readyz?verbose", "")
	if err != nil {
		return nil, err
	}
	if !strings.Contains(string(a.text), "[+]") {
		return nil, fmt.Errorf("%d, and no list of checks: is --health the metrics listener of a spillway?", a.code)
	}
	return faultLine.FindAllString(string(a.text), -1), nil
}

// bareVersion matches versions of APIs, and no groups.
var bareVersion = regexp.MustCompile(`^v[0-9]+((alpha|beta)[0-9]+)?$`)

// readPath finds where a resource[.version][.group] is listed. If it names no version, that is the
// one that the API server prefers.
func (e *Endpoint) readPath(ctx context.Context, resource string) (string, error) {
	versioned, plain := schema.ParseResourceArg(resource)
	if versioned == nil || !bareVersion.MatchString(versioned.Version) {
		versioned = &schema.GroupVersionResource{Group: plain.Group, Resource: plain.Resource}
	}
	if versioned.Group == "" {
		return "/api/v1/" + versioned.Resource, nil
	}
	if versioned.Version == "" {
		var g struct{ PreferredVersion struct{ Version string } }
		if _, err := e.get(ctx, "/apis/"+versioned.Group, &g); err != nil {
			return "", err
		}
		if versioned.Version = g.PreferredVersion.Version; versioned.Version == "" {
			return "", fmt.Errorf("the answer names no version of %s: is --server a spillway?", versioned.Group)
		}
	}
	return "/apis/" + versioned.Group + "/" + versioned.Version + "/" + versioned.Resource, nil
}
