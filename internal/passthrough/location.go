package passthrough

import (
	"cmp"
	"encoding/hex"
	"net/http"
	"net/url"
	"strings"
)

// mapBack replaces upstream's addresses in an answer by the client's: it drops the path of base,
// which goes in front of every request's, and upstream's scheme and host. Other addresses stay.
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

// mapLocation is a redirect's target for the client. A path of upstream's host that no request of
// the client's can reach is given with that host.
func mapLocation(location string, base *url.URL) string {
	target, ok := upstreamTarget(location, base)
	if !ok {
		return location
	}
	if below, ok := belowPath(target, basePath(base)); ok {
		return below
	}
	if target != location { // it names the host
		return location
	}
	return base.Scheme + "://" + base.Host + target
}

// upstreamTarget is a redirect's path on upstream's host, and what follows it. A redirect has none
// if it leads elsewhere, or is the same on both sides: relative to the request, or to an upstream
// without a base path.
func upstreamTarget(location string, base *url.URL) (string, bool) {
	u, err := url.Parse(location)
	switch {
	case err != nil || u.Opaque != "":
		return "", false
	case u.Host != "":
		return afterHost(location),
			(u.Scheme == "" || strings.EqualFold(u.Scheme, base.Scheme)) && u.User == nil && isSameHost(u, base)
	}
	return location, u.Scheme == "" && basePath(base) != "" && strings.HasPrefix(location, "/") &&
		!strings.HasPrefix(location, "//")
}

// afterHost is what follows the host of an absolute URL.
func afterHost(location string) string {
	_, rest, _ := strings.Cut(location, "//")
	if at := strings.IndexAny(rest, "/?#"); at >= 0 {
		return rest[at:]
	}
	return ""
}

// isSameHost reports that u has the host and the port of base.
func isSameHost(u, base *url.URL) bool {
	usual := "443"
	if base.Scheme == "http" {
		usual = "80"
	}
	return strings.EqualFold(u.Hostname(), base.Hostname()) &&
		cmp.Or(u.Port(), usual) == cmp.Or(base.Port(), usual)
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

// pathByte is a byte of a path. A slash that is encoded separates no segments, so it is another
// than one that is not; so are the other delimiters.
type pathByte struct {
	value              byte
	isEncodedDelimiter bool
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
	return pathByte{value: decoded[0], isEncodedDelimiter: strings.IndexByte("/?#%", decoded[0]) >= 0}, path[3:]
}

// belowPath is a target, a path and what follows it, without the prefix of its path. A target that
// can climb may lead out of the prefix, so it is not below it. What is returned begins with one
// slash: with two, or with what browsers take for them, it would name a host.
func belowPath(target, prefix string) (string, bool) {
	rest, ok := cutPrefix(target, prefix)
	switch {
	case !ok, rest != "" && !strings.ContainsRune("/?#", rune(rest[0])), prefix != "" && canClimb(rest):
		return "", false
	case rest == "" || rest[0] != '/':
		return "/" + rest, true
	case len(rest) > 1 && (rest[1] == '/' || rest[1] == '\\'):
		return "/." + rest, true
	}
	return rest, true
}

// canClimb reports that some party may read a segment of a target's path as one that leads up, at
// any depth of percent-decoding.
func canClimb(target string) bool {
	path := target
	if end := strings.IndexAny(target, "?#"); end >= 0 {
		path = target[:end]
	}
	for segment := range strings.FieldsFuncSeq(decodeFully(path), isSlash) {
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
