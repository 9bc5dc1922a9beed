// Package requestinfo reads requests with kube-apiserver's own code: authorization, answers from
// memory and passing through build on one reading.
package requestinfo

import (
	"errors"
	"net/http"
	"net/url"
	"strings"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints/request"
)

// factory has the prefixes of kube-apiserver.
var factory = &request.RequestInfoFactory{
	APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api"),
}

// segmentsLimit is more than the factory looks at in any path: the nine of
// /apis/{group}/{version}/watch/namespaces/{namespace}/{resource}/{name}/{subresource}.
const segmentsLimit = 16

// Read reads a request as kube-apiserver does, from its raw path and raw query. It fails if the
// request does not reach kube-apiserver's authorizer. Of more than segmentsLimit segments, Parts
// has the first ones; Path is whole.
func Read(method, path, query string) (*request.RequestInfo, error) {
	u, err := url.ParseRequestURI(path)
	if err != nil {
		return nil, err
	}
	if !strings.HasPrefix(path, "/") {
		return nil, errors.New("the path begins with no slash")
	}
	whole := u.Path
	u.Path, u.RawQuery = firstSegments(whole), query
	info, err := factory.NewRequestInfo(&http.Request{Method: method, URL: u})
	if err != nil {
		return nil, err
	}
	info.Path = whole
	return info, nil
}

// ReadPath reads a path alone. The verb of a resource is "watch" or "proxy" if the path says so,
// else empty.
func ReadPath(path string) (*request.RequestInfo, error) { return Read("", path, "") }

// firstSegments replaces the segments beyond segmentsLimit by one. The factory would split all of
// them, and a client can send any number.
func firstSegments(path string) string {
	trimmed, end := strings.Trim(path, "/"), 0 // of the segments that are kept, with their slashes
	for range segmentsLimit {
		i := strings.IndexByte(trimmed[end:], '/')
		if i < 0 {
			return path
		}
		end += i + 1
	}
	return trimmed[:end] + "more"
}
