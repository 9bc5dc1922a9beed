package check

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// probe requests a path whose answer matters by its code alone, and returns the code of a success.
func (e *Endpoint) probe(ctx context.Context, path string) (string, error) {
	a, err := e.send(ctx, http.MethodGet, path, "")
	if err != nil {
		return "", err
	}
	if err := a.check(); err != nil {
		return "", err
	}
	return strconv.Itoa(a.code), nil
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

// faultLine is a line of /readyz?verbose about a fault that does not end by itself: any failed
// check ([-]), and of the warnings ([!]) those about reviews that fail, and about a mirror that
// upstream refuses. Other mirrors and loops recover by themselves. Package health makes the lines
// of checks, describeReviews of cmd/proxy those of reviews, and mirror.Set.Describe those of
// mirrors.
var faultLine = regexp.MustCompile(`(?m)^\[-\].*|^\[!\](reviews |mirror [^ ]+ refused ).*`)

// readFaults reads from a metrics listener the faults that do not end by themselves.
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

// bareVersion matches versions of APIs. It tells deployments.v1.apps, which has one, from groups
// with dots: the second part of widgets.example.com is no version.
var bareVersion = regexp.MustCompile(`^v[0-9]+((alpha|beta)[0-9]+)?$`)

// listPath finds where a resource[.version][.group] is listed. If it names no version, that is the
// one that the API server prefers. A resource without a group is one of the core API, whose version
// is always v1. With a version it needs a final dot: in pods.v1. the group is empty, and in pods.v1
// it is v1.
func (e *Endpoint) listPath(ctx context.Context, resource string) (string, error) {
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
