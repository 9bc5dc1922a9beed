package plan

import (
	"net/url"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"

	"spillway/internal/object"
	"spillway/internal/requestinfo"
)

// Request is what a plan looks at: the raw request, unparsed where parsing could differ from
// upstream's (W-24, W-250).
type Request struct {
	Method   string
	Path     string // as sent, percent escapes and all
	RawQuery string
	// Accept and AcceptEncoding are the first header of the name: upstream reads no other.
	Accept         string
	AcceptEncoding string
	UserAgent      string
	// Plain says that the request is nothing but its head, in HTTP/1.1 or 2, and requests no other
	// protocol, unless WebSocket is set. All others go upstream.
	Plain bool
	// WebSocket says that a watch is to be sent over a WebSocket, whose handshake upstream would
	// accept (W-119). All but watches go upstream.
	WebSocket bool
	// Chunked says that any other watch is sent in chunks of HTTP/1.1, one for each event.
	Chunked bool
}

// QueryParametersLimit is how many parameters a query may have that is read here. Go's net/url
// reads none of more than 10,000, older versions read all of them, and GODEBUG=urlmaxqueryparams
// sets any number. A query that is far below all of these has one reading.
const QueryParametersLimit = 1000

// IsOverfull reports that a raw query has so many parameters that two parties may read different
// ones.
func IsOverfull(query string) bool { return strings.Count(query, "&") >= QueryParametersLimit }

// Query reads the parameters with Go's own code, which drops what upstream drops (W-24).
func (r Request) Query() url.Values {
	query, _ := url.ParseQuery(r.RawQuery)
	return query
}

// QueryBool reads a boolean with upstream's own code: absent, "0" and "false" are false, everything
// else is true. Of several values the first counts (W-24, W-25).
func QueryBool(query url.Values, name string) (on bool) {
	values := query[name]
	_ = runtime.Convert_Slice_string_To_bool(&values, &on, nil) // its error is always nil
	return on
}

// queryTimeout reads how long a request that is not a watch may take; 0: upstream decides (W-28).
func queryTimeout(query url.Values) (time.Duration, error) {
	text := query.Get("timeout")
	if text == "" {
		return 0, nil
	}
	return time.ParseDuration(text)
}

// Target is what a path names, if that can be answered from memory: a collection, an object, or one
// of the two by the deprecated path that always watches.
type Target struct {
	gvr               schema.GroupVersionResource
	namespace         string
	name              string // "" for a collection
	isWatchPath       bool   // …/watch/… (W-33)
	hasEmptyNamespace bool   // the path has an empty segment for the namespace: all of them (W-20)
}

// ParseTarget reads a raw path as upstream does (W-20, W-21), and has a target only if the path is
// spelled canonically, with at most one slash behind it. Subresources, and whatever is not plainly
// a collection or an object, go upstream, which words the answer.
func ParseTarget(raw string) (Target, bool) {
	info, err := requestinfo.ReadPath(raw)
	if err != nil || info.Resource == "" {
		return Target{}, false
	}
	t := Target{
		gvr:       schema.GroupVersionResource{Group: info.APIGroup, Version: info.APIVersion, Resource: info.Resource},
		namespace: info.Namespace, name: info.Name, isWatchPath: info.Verb == "watch",
	}
	if t.gvr.Resource == "namespaces" && t.namespace == t.name {
		t.namespace = "" // upstream takes namespaces to be in themselves
	}
	path := strings.TrimSuffix(info.Path, "/")
	if path != t.canonicalPath() {
		t.hasEmptyNamespace = t.namespace == ""
		if path != t.canonicalPath() {
			return Target{}, false
		}
	}
	return t, object.HasPaths(t.gvr.GroupResource()) && len(content.IsPathSegmentName(t.name)) == 0 &&
		canBeNamespace(t.namespace)
}

// canBeNamespace reports that a namespace may have this name, or that it is empty. Nothing is in
// any other, and the proxy requests no path with such a name by itself.
func canBeNamespace(name string) bool { return name == "" || len(validation.IsDNS1123Label(name)) == 0 }

// Path is the canonical path of the target's collection, for requests under the proxy's own
// credentials.
func (t Target) Path() string { return Target{gvr: t.gvr, namespace: t.namespace}.canonicalPath() }

func (t Target) canonicalPath() string {
	segments := append(make([]string, 0, 9), "", "apis", t.gvr.Group, t.gvr.Version)
	if t.gvr.Group == "" {
		segments = append(segments[:0], "", "api", t.gvr.Version)
	}
	if t.isWatchPath {
		segments = append(segments, "watch")
	}
	if t.namespace != "" || t.hasEmptyNamespace {
		segments = append(segments, "namespaces", t.namespace)
	}
	segments = append(segments, t.gvr.Resource)
	if t.name != "" {
		segments = append(segments, t.name)
	}
	return strings.Join(segments, "/")
}

// isObject reports that the path names an object, and is not read as a collection of one.
func (t Target) isObject() bool { return t.name != "" && !t.isWatchPath }

// Watches reports that the request is a WATCH, well-formed or not.
func (t Target) Watches(query url.Values) bool {
	return t.isWatchPath || t.name == "" && QueryBool(query, "watch")
}

// hasScopeOf reports that the path's scope is the resource's: upstream answers others with a 404
// (W-172) or in other words.
func (t Target) hasScopeOf(info *object.Resource) bool {
	switch {
	case !info.Namespaced:
		return t.namespace == "" && !t.hasEmptyNamespace
	case t.name != "":
		return t.namespace != ""
	}
	return true
}

// key is the place of a named object in its resource.
func (t Target) key() string {
	if t.namespace == "" {
		return t.name
	}
	return t.namespace + "/" + t.name
}
