package passthrough

import (
	"encoding/hex"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"spillway/internal/requestinfo"
)

// connectSubresources hand the client a connection to something behind the API server.
var connectSubresources = []string{"exec", "attach", "portforward", "proxy"}

// apiPath is what a request path names, as upstream reads it. Resource, name and subresource are
// empty where the path has none.
type apiPath struct {
	verb                        string // "watch" or "proxy" of the old /api/v1/watch/… form, else empty
	resource, name, subresource string
	// isSuspect says that a party between the proxy and the API server might read this path
	// differently, and mayConnect that some segment in one of these readings is a connectSubresource.
	isSuspect, mayConnect bool
}

// parseAPIPath reads the raw path of a request target. A path that upstream cannot read is suspect
// and names nothing.
func parseAPIPath(raw string) apiPath {
	info, err := requestinfo.ReadPath(raw)
	p := apiPath{isSuspect: err != nil || hasOtherReading(raw, info.Path)}
	if p.isSuspect {
		for segment := range strings.FieldsFuncSeq(decodeFully(raw), isSlash) {
			p.mayConnect = p.mayConnect || isConnectSubresource(segment)
		}
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
	return p.verb == "proxy" || isConnectSubresource(p.subresource) || p.mayConnect
}

// isProxy reports that every reading of the path is that of a service, pod or node behind the API
// server.
func (p apiPath) isProxy() bool {
	return !p.isSuspect && (p.verb == "proxy" || p.subresource == "proxy")
}

func isConnectSubresource(name string) bool { return slices.Contains(connectSubresources, name) }

func isSlash(r rune) bool { return r == '/' || r == '\\' }

// hasOtherReading reports slashes that are encoded or doubled, dot segments, backslashes and double
// encoding in a raw path. path is what upstream decodes it to.
func hasOtherReading(raw, path string) bool {
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

// canStray reports that some party may read a raw path as one that leaves the path in front of it:
// dot segments (with parameters, too), backslashes, encoded slashes, and what decoders disagree
// about (control characters, malformed UTF-8). It looks at the last depth of percent-decoding,
// where everything is that is there at any depth.
func canStray(raw string) bool {
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
