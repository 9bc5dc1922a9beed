package passthrough

import (
	"encoding/hex"
	"iter"
	"net/url"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// connects are the subresources that hand the client a connection to something behind the
// apiserver.
var connects = []string{"exec", "attach", "portforward", "proxy"}

// pathPartsLimit is more than the segments of the longest path whose parts have names.
const pathPartsLimit = 16

// apiPath is what a request path names, read as upstream reads it: percent-decoded once, then split
// at every slash (W-21), so that an encoded slash makes two segments there and here. Resource, name
// and subresource are empty where the path has none.
type apiPath struct {
	verb                        string // "watch" or "proxy" of the old /api/v1/watch/… form, else empty
	resource, name, subresource string
	// suspect says that a party between us and the apiserver might read this path otherwise than we
	// do, and connects that some segment that any reading could make of it is one of those.
	suspect, connects bool
}

// parseAPIPath reads the raw path of a request target. A path that cannot be decoded is suspect and
// names nothing.
func parseAPIPath(raw string) apiPath {
	path, err := url.PathUnescape(raw)
	if err != nil {
		return apiPath{suspect: true, connects: anyConnects(strings.SplitSeq(raw, "/"))}
	}
	trimmed := strings.Trim(path, "/")
	p := apiPath{suspect: suspectPath(raw, path, trimmed)}
	if p.suspect {
		p.connects = anyConnects(strings.FieldsFuncSeq(decodeFully(path), func(r rune) bool { return r == '/' || r == '\\' }))
	}
	parts := resourceParts(strings.SplitN(trimmed, "/", pathPartsLimit)) // a client chooses how many there are
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

// connect reports whether any reading of the path opens a connection to a workload, node or
// service.
func (p apiPath) connect() bool {
	if p.verb == "proxy" || slices.Contains(connects, p.subresource) {
		return true
	}
	return p.connects
}

// anyConnects reports that one of these segments is a connect's.
func anyConnects(segments iter.Seq[string]) bool {
	for s := range segments {
		if slices.Contains(connects, s) {
			return true
		}
	}
	return false
}

// proxies reports that every reading of the path is that of a service, pod or node behind the
// apiserver.
func (p apiPath) proxies() bool { return !p.suspect && (p.verb == "proxy" || p.subresource == "proxy") }

// resourceParts are the segments after /api/{version} or /apis/{group}/{version}; none for any
// other path.
func resourceParts(parts []string) []string {
	switch {
	case parts[0] == "api" && len(parts) > 2:
		return parts[2:]
	case parts[0] == "apis" && len(parts) > 3:
		return parts[3:]
	}
	return nil
}

// suspectPath reports slashes that are encoded or doubled, dot segments, backslashes and double
// encoding.
func suspectPath(raw, path, trimmed string) bool {
	return strings.Count(raw, "/") != strings.Count(path, "/") ||
		strings.Contains(path, "//") || strings.ContainsAny(path, `%\`) ||
		dotted(trimmed)
}

func dotted(path string) bool {
	for segment := range strings.SplitSeq(path, "/") {
		if segment == "." || segment == ".." {
			return true
		}
	}
	return false
}

// decodeFully percent-decodes until nothing is left to decode, in one pass: a decoded byte may
// complete an escape whose beginning is in front of it. What is no escape stays, as lenient
// decoders have it, and hides nothing behind it.
func decodeFully(path string) string {
	if !strings.Contains(path, "%") {
		return path
	}
	out := make([]byte, 0, len(path))
	for i := range len(path) {
		out = append(out, path[i])
		for n := len(out); n > 2 && out[n-3] == '%'; n = len(out) {
			b, err := hex.DecodeString(string(out[n-2:]))
			if err != nil {
				break
			}
			out = append(out[:n-3], b[0])
		}
	}
	return string(out)
}

// strays reports that some party may read a raw path as one that leaves the path in front of it:
// dot segments (with parameters, too), backslashes, encoded slashes, and what decoders disagree
// about (control characters, malformed UTF-8), at any depth of percent-decoding. What is there at
// some depth is there at the last one, so that one is looked at.
func strays(raw string) bool {
	path := decodeFully(raw)
	if strings.Count(path, "/") != strings.Count(raw, "/") || strings.Contains(path, `\`) || !utf8.ValidString(path) ||
		strings.ContainsFunc(path, unicode.IsControl) {
		return true
	}
	for segment := range strings.SplitSeq(path, "/") {
		if name, _, _ := strings.Cut(segment, ";"); name == "." || name == ".." {
			return true
		}
	}
	return false
}

// queryTrue reports whether a boolean option is on: its first value is anything but 0 and false
// (W-24, W-25).
func queryTrue(query url.Values, name string) bool {
	values, ok := query[name]
	return ok && values[0] != "0" && !strings.EqualFold(values[0], "false")
}
