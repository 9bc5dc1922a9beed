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
	// Plain says that the request is nothing but its head, in HTTP/1.1 or 2, and asks for no other
	// protocol than what WebSocket says. All others go upstream.
	Plain bool
	// WebSocket says that a watch is to be sent over a WebSocket, whose handshake upstream would agree
	// to (W-119). Requests for anything else over one go upstream.
	WebSocket bool
	// Chunked says that a watch is otherwise sent as chunks of HTTP/1.1, one for each event.
	Chunked bool
}

// QueryParametersLimit is how many parameters a query may have that is read here and answered by
// it. Go's net/url reads none of more than 10,000, older ones all of them, and
// GODEBUG=urlmaxqueryparams sets any number: of a query that is far below all of these, every party
// reads the same.
const QueryParametersLimit = 1000

// Overfull reports that two parties may read different parameters in a raw query.
func Overfull(query string) bool { return strings.Count(query, "&") >= QueryParametersLimit }

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

// queryTimeout reads how long the client gives a request that is not a watch; 0 is as long as
// upstream likes (W-28).
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
	gvr       schema.GroupVersionResource
	namespace string
	name      string // "" for a collection
	watch     bool   // …/watch/… (W-33)
	anywhere  bool   // the path has a namespace segment, and it is empty: all namespaces (W-20)
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
		namespace: info.Namespace, name: info.Name, watch: info.Verb == "watch",
	}
	if t.gvr.Resource == "namespaces" && t.namespace == t.name {
		t.namespace = "" // upstream takes namespaces to be in themselves
	}
	path := strings.TrimSuffix(info.Path, "/")
	if path != t.spelling() {
		t.anywhere = t.namespace == ""
		if path != t.spelling() {
			return Target{}, false
		}
	}
	return t, object.HasPaths(t.gvr.GroupResource()) && len(content.IsPathSegmentName(t.name)) == 0 &&
		namespaceName(t.namespace)
}

// namespaceName reports that a namespace may have this name, or that it is empty. Nothing is in any
// other, and it is no part of a path that the proxy asks for itself.
func namespaceName(name string) bool { return name == "" || len(validation.IsDNS1123Label(name)) == 0 }

// Path is the one canonical path of a collection: what a request travels by whose credentials are
// the proxy's own.
func (t Target) Path() string { return Target{gvr: t.gvr, namespace: t.namespace}.spelling() }

// spelling is the canonical path of the target.
func (t Target) spelling() string {
	segments := append(make([]string, 0, 9), "", "apis", t.gvr.Group, t.gvr.Version)
	if t.gvr.Group == "" {
		segments = append(segments[:0], "", "api", t.gvr.Version)
	}
	if t.watch {
		segments = append(segments, "watch")
	}
	if t.namespace != "" || t.anywhere {
		segments = append(segments, "namespaces", t.namespace)
	}
	segments = append(segments, t.gvr.Resource)
	if t.name != "" {
		segments = append(segments, t.name)
	}
	return strings.Join(segments, "/")
}

// object reports that the path is read as an object, not as a collection of one.
func (t Target) object() bool { return t.name != "" && !t.watch }

// Watches reports that the request is a WATCH, well-formed or not.
func (t Target) Watches(query url.Values) bool {
	return t.watch || t.name == "" && QueryBool(query, "watch")
}

// fits reports that the path's scope is the resource's: to others upstream answers 404 (W-172), or
// words it otherwise.
func (t Target) fits(info *object.Resource) bool {
	switch {
	case !info.Namespaced:
		return t.namespace == "" && !t.anywhere
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
