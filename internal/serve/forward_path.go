package serve

import (
	"net/url"
	"slices"
	"strings"
)

// connects are the subresources that hand the client a connection to something behind the apiserver.
var connects = []string{"exec", "attach", "portforward", "proxy"}

// apiPath is what a request path names, read as upstream reads it: percent-decoded once, then split at every slash
// (W-21), so that an encoded slash makes two segments there and here. Resource, name and subresource are empty where
// the path has none.
type apiPath struct {
	verb                        string // "watch" or "proxy" of the old /api/v1/watch/… form, else empty
	resource, name, subresource string
	// suspect says that a party between us and the apiserver might read this path otherwise than we do; words then
	// holds every segment that any reading could make of it.
	suspect bool
	words   []string
}

// parseAPIPath reads the raw path of a request target. A path that cannot be decoded is suspect and names nothing.
func parseAPIPath(raw string) apiPath {
	path, err := url.PathUnescape(raw)
	if err != nil {
		return apiPath{suspect: true, words: strings.Split(raw, "/")}
	}
	parts := strings.Split(strings.Trim(path, "/"), "/")
	p := apiPath{suspect: suspectPath(raw, path, parts)}
	if p.suspect {
		p.words = strings.FieldsFunc(decodeFully(path), func(r rune) bool { return r == '/' || r == '\\' })
	}
	parts = resourceParts(parts)
	if len(parts) > 1 && (parts[0] == "watch" || parts[0] == "proxy") {
		p.verb, parts = parts[0], parts[1:]
	}
	if len(parts) > 2 && parts[0] == "namespaces" && parts[2] != "status" && parts[2] != "finalize" {
		parts = parts[2:]
	}
	for i, field := range []*string{&p.resource, &p.name, &p.subresource} {
		if i < len(parts) {
			*field = parts[i]
		}
	}
	return p
}

// connect reports whether any reading of the path opens a connection to a workload, node or service.
func (p apiPath) connect() bool {
	if p.verb == "proxy" || slices.Contains(connects, p.subresource) {
		return true
	}
	return p.suspect && slices.ContainsFunc(p.words, func(w string) bool { return slices.Contains(connects, w) })
}

// resourceParts are the segments after /api/{version} or /apis/{group}/{version}; none for any other path.
func resourceParts(parts []string) []string {
	switch {
	case parts[0] == "api" && len(parts) > 2:
		return parts[2:]
	case parts[0] == "apis" && len(parts) > 3:
		return parts[3:]
	}
	return nil
}

// suspectPath reports slashes that are encoded or doubled, dot segments, backslashes and double encoding.
func suspectPath(raw, path string, parts []string) bool {
	return strings.Count(raw, "/") != strings.Count(path, "/") ||
		strings.Contains(path, "//") || strings.ContainsAny(path, `%\`) ||
		slices.Contains(parts, ".") || slices.Contains(parts, "..")
}

// decodeFully percent-decodes until nothing is left to decode; each round shortens the path.
func decodeFully(path string) string {
	for strings.Contains(path, "%") {
		next, err := url.PathUnescape(path)
		if err != nil || next == path {
			return path
		}
		path = next
	}
	return path
}

// queryTrue reports whether a boolean option is on: its first value is anything but 0 and false (W-24, W-25).
func queryTrue(query url.Values, name string) bool {
	values, ok := query[name]
	return ok && values[0] != "0" && !strings.EqualFold(values[0], "false")
}
