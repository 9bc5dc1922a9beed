package check

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"spillway/internal/editdistance"
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
var faultLine = regexp.MustCompile(`(?m)^\[-\].*|^\[!\](files: |reviews |mirror [^ ]+ refused ).*`)

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
	switch {
	case versioned == nil && bareVersion.MatchString(plain.Group): // pods.v1, which the proxy takes, too
		versioned = &schema.GroupVersionResource{Version: plain.Group, Resource: plain.Resource}
	case versioned == nil || !bareVersion.MatchString(versioned.Version):
		versioned = &schema.GroupVersionResource{Group: plain.Group, Resource: plain.Resource}
	}
	if versioned.Group == "" {
		return "/api/" + cmp.Or(versioned.Version, "v1") + "/" + versioned.Resource, nil
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

// servedResource is a resource in discovery.
type servedResource struct {
	group, plural string
	aliases       []string // its singular and its short names
}

func (s servedResource) String() string { return strings.TrimSuffix(s.plural+"."+s.group, ".") }

// readServed reads which resources the API server serves, in its aggregated form of discovery. What
// cannot be read is left out.
func (e *Endpoint) readServed(ctx context.Context) (all []servedResource) {
	const accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
	for _, path := range []string{"/api", "/apis"} {
		var groups struct {
			Items []struct {
				Metadata struct{ Name string }
				Versions []struct {
					Resources []struct {
						Resource, SingularResource string
						ShortNames                 []string
					}
				}
			}
		}
		a, err := e.sendAccepting(ctx, http.MethodGet, path, "", accept)
		if err != nil || a.check() != nil || a.decode(&groups) != nil {
			continue
		}
		for _, g := range groups.Items {
			for _, v := range g.Versions {
				for _, r := range v.Resources {
					all = append(all, servedResource{g.Metadata.Name, r.Resource, append(r.ShortNames, r.SingularResource)})
				}
			}
		}
	}
	return all
}

// explainUnknown adds to the refusal of a resource which one may have been meant, if the API server
// does not serve it. A user that may not list it gets 403, whether it is served or not.
func (e *Endpoint) explainUnknown(ctx context.Context, resource string, err error) error {
	var refusal *refusalError
	if !errors.As(err, &refusal) || refusal.code != http.StatusNotFound && refusal.code != http.StatusForbidden {
		return err
	}
	served := e.readServed(ctx)
	name, rest, _ := strings.Cut(resource, ".")
	group := rest
	if version, after, _ := strings.Cut(rest, "."); bareVersion.MatchString(version) {
		group = after
	}
	isServed := func(s servedResource) bool { return s.plural == name && s.group == group }
	if len(served) == 0 || slices.ContainsFunc(served, isServed) {
		return err
	}
	unknown := fmt.Sprintf("the API server serves no resource %q", resource)
	near := suggestNames(name, served)
	if len(near) == 0 {
		return fmt.Errorf("%s: kubectl api-resources lists them", unknown)
	}
	return fmt.Errorf("%s: did you mean %s?", unknown, strings.Join(near, ", "))
}

// suggestionsLimit is how many names a message suggests.
const suggestionsLimit = 3

// suggestNames are the names of served resources that a name may have been meant to be, the nearest
// first.
func suggestNames(name string, served []servedResource) []string {
	distances := map[string]int{}
	for _, s := range served {
		distance := editdistance.Of(name, s.plural)
		if slices.Contains(s.aliases, name) {
			distance = 0
		}
		if distance <= 1+len(name)/4 {
			distances[s.String()] = distance
		}
	}
	names := slices.SortedFunc(maps.Keys(distances), func(a, b string) int {
		return cmp.Or(cmp.Compare(distances[a], distances[b]), strings.Compare(a, b))
	})
	return names[:min(len(names), suggestionsLimit)]
}
