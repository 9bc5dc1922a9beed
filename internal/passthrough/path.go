package passthrough

import (
	"encoding/hex"
	"iter"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"spillway/internal/requestinfo"
)

// connects are the subresources that hand the client a connection to something behind the
// apiserver.
var connects = []string{"exec", "attach", "portforward", "proxy"}

// apiPath is what a request path names, as upstream reads it. Resource, name and subresource are
// empty where the path has none.
type apiPath struct {
	verb                        string // "watch" or "proxy" of the old /api/v1/watch/… form, else empty
	resource, name, subresource string
	// suspect says that a party between us and the apiserver might read this path otherwise than we
	// do, and connects that some segment that any reading could make of it is one of those.
	suspect, connects bool
}

// parseAPIPath reads the raw path of a request target. A path that upstream cannot read is suspect
// and names nothing.
func parseAPIPath(raw string) apiPath {
	info, err := requestinfo.ReadPath(raw)
	p := apiPath{suspect: err != nil || suspectPath(raw, info.Path)}
	if p.suspect {
		p.connects = anyConnects(strings.FieldsFuncSeq(decodeFully(raw), func(r rune) bool { return r == '/' || r == '\\' }))
	}
	if err != nil || !info.IsResourceRequest {
		return p
	}
	p.verb, p.resource, p.name, p.subresource = info.Verb, info.Resource, info.Name, info.Subresource
	return p
}

// isConnect reports whether any reading of the path opens a connection to a workload, node or
// service.
func (p apiPath) isConnect() bool {
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

// isProxy reports that every reading of the path is that of a service, pod or node behind the
// apiserver.
func (p apiPath) isProxy() bool { return !p.suspect && (p.verb == "proxy" || p.subresource == "proxy") }

// suspectPath reports slashes that are encoded or doubled, dot segments, backslashes and double
// encoding.
func suspectPath(raw, path string) bool {
	return strings.Count(raw, "/") != strings.Count(path, "/") ||
		strings.Contains(path, "//") || strings.ContainsAny(path, `%\`) ||
		strings.Contains(path+"/", "/./") || strings.Contains(path+"/", "/../")
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
			if _, err := hex.Decode(out[n-3:], out[n-2:]); err != nil {
				break
			}
			out = out[:n-2]
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
