package passthrough

import (
	"encoding/hex"
	"net/http"
	"net/url"
	"strings"
)

// mapBack changes what an answer says of upstream's addresses to what they are from the client's
// side: the path of base, which goes in front of every request's, is taken off again, and so are
// upstream's scheme and host. Elsewhere is left as it is.
func mapBack(h http.Header, base *url.URL) {
	for i, location := range h["Location"] {
		h["Location"][i] = mapLocation(location, base)
	}
	if prefix := basePath(base); prefix != "" {
		for i, cookie := range h["Set-Cookie"] {
			h["Set-Cookie"][i] = mapCookie(cookie, prefix)
		}
	}
}

// basePath is the path of base as it is sent, without a slash at its end.
func basePath(base *url.URL) string { return strings.TrimSuffix(base.EscapedPath(), "/") }

// mapLocation is a redirect's target for the client. One that is relative to the request is so on
// both sides. A path of upstream's host that no request of the client's can reach is given with
// that host.
func mapLocation(location string, base *url.URL) string {
	u, err := url.Parse(location)
	if err != nil || u.Opaque != "" {
		return location
	}
	target, prefix := location, basePath(base)
	switch {
	case u.Scheme == "" && u.Host == "" && prefix != "" && strings.HasPrefix(location, "/") &&
		!strings.HasPrefix(location, "//"):
	case u.Host != "" && (u.Scheme == "" || strings.EqualFold(u.Scheme, base.Scheme)) && u.User == nil &&
		sameHost(u, base):
		target = afterHost(location)
	default:
		return location
	}
	if below, ok := belowPath(target, prefix); ok {
		return below
	}
	if u.Host != "" {
		return location
	}
	return base.Scheme + "://" + base.Host + target
}

// afterHost is what follows the host of an absolute URL.
func afterHost(location string) string {
	_, rest, _ := strings.Cut(location, "//")
	if at := strings.IndexAny(rest, "/?#"); at >= 0 {
		return rest[at:]
	}
	return ""
}

// sameHost compares hosts and ports.
func sameHost(a, b *url.URL) bool {
	port := func(u *url.URL) string {
		if p := u.Port(); p != "" {
			return p
		}
		if b.Scheme == "http" {
			return "80"
		}
		return "443"
	}
	return strings.EqualFold(a.Hostname(), b.Hostname()) && port(a) == port(b)
}

// cutPrefix cuts the prefix off a target that begins with the same path, maybe in another percent
// form (RFC 3986, section 6.2.2.2).
func cutPrefix(target, prefix string) (rest string, ok bool) {
	for prefix != "" {
		if target == "" {
			return "", false
		}
		var got, want pathByte
		got, target = firstPathByte(target)
		want, prefix = firstPathByte(prefix)
		if got != want {
			return "", false
		}
	}
	return target, true
}

// pathByte is a byte of a path, and whether it stands for itself alone: a slash that is encoded
// separates no segments, and so is another than one that is not.
type pathByte struct {
	value   byte
	encoded bool
}

// firstPathByte is the first byte of a path that is not empty, and what follows it.
func firstPathByte(path string) (pathByte, string) {
	if path[0] != '%' || len(path) < 3 {
		return pathByte{value: path[0]}, path[1:]
	}
	decoded, err := hex.DecodeString(path[1:3])
	if err != nil {
		return pathByte{value: '%'}, path[1:]
	}
	return pathByte{value: decoded[0], encoded: strings.IndexByte("/?#%", decoded[0]) >= 0}, path[3:]
}

// belowPath is a target, a path and what follows it, without the prefix of its path. A target that
// climbs may lead out of the prefix, so it is not below it. What is returned begins with one slash:
// with two, or with what browsers take for them, it would name a host.
func belowPath(target, prefix string) (string, bool) {
	rest, ok := cutPrefix(target, prefix)
	switch {
	case !ok, rest != "" && !strings.ContainsRune("/?#", rune(rest[0])), prefix != "" && climbs(rest):
		return "", false
	case rest == "" || rest[0] != '/':
		return "/" + rest, true
	case len(rest) > 1 && (rest[1] == '/' || rest[1] == '\\'):
		return "/." + rest, true
	}
	return rest, true
}

// climbs reports that some party may read the path of a target as one with a segment that leads up,
// at any depth of percent-decoding.
func climbs(target string) bool {
	path := target
	if end := strings.IndexAny(target, "?#"); end >= 0 {
		path = target[:end]
	}
	for segment := range strings.FieldsFuncSeq(decodeFully(path), func(r rune) bool { return r == '/' || r == '\\' }) {
		if name, _, _ := strings.Cut(segment, ";"); name == ".." {
			return true
		}
	}
	return false
}

// mapCookie is a Set-Cookie header whose Path is the client's.
func mapCookie(cookie, prefix string) string {
	attributes := strings.Split(cookie, ";")
	for i, attribute := range attributes[1:] {
		name, value, _ := strings.Cut(attribute, "=")
		if !strings.EqualFold(strings.TrimSpace(name), "Path") {
			continue
		}
		if below, ok := belowPath(strings.TrimSpace(value), prefix); ok {
			attributes[i+1] = name + "=" + below
		}
	}
	return strings.Join(attributes, ";")
}
