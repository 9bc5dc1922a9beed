package passthrough

import (
	"fmt"
	"net/url"
	"strings"
)

// targetURL is base with the raw request target behind its path. Path and query reach upstream byte
// for byte, since only upstream knows how it reads them (W-21, W-24), but for what a request line
// of HTTP/1.1 cannot carry or parties read differently there: that is percent-encoded, which
// upstream decodes to the same. target must be in origin form. The error is net/http's own
// complaint.
func targetURL(base *url.URL, target string) (*url.URL, error) {
	in, err := url.ParseRequestURI(target)
	if err != nil {
		return nil, err
	}
	raw, query, asked := strings.Cut(VisibleTarget(target), "?")
	raw = strings.TrimSuffix(base.EscapedPath(), "/") + raw
	out := &url.URL{
		Scheme:     base.Scheme,
		Host:       base.Host,
		Path:       strings.TrimSuffix(base.Path, "/") + in.Path,
		RawPath:    raw,
		RawQuery:   query,
		ForceQuery: asked && query == "",
	}
	// net/url re-encodes a path that it would have encoded otherwise. Opaque is written as it is, but
	// would be taken for an authority if it began with two slashes; such a path goes out re-encoded.
	if out.EscapedPath() != raw && !strings.HasPrefix(raw, "//") {
		out.Opaque = raw
	}
	return out, nil
}

// VisibleTarget percent-encodes what is not visible ASCII: blanks, which end a target in a request
// line, and bytes above it; and '#', behind which some see a fragment. It never completes an escape
// that was malformed: no hexadecimal digit is encoded, and none begins an encoded byte.
func VisibleTarget(target string) string {
	unsafe := func(b byte) bool { return b <= ' ' || b >= 0x7f || b == '#' }
	var out []byte
	done := 0 // of target, in out
	for i := range len(target) {
		if unsafe(target[i]) {
			out = append(out, target[done:i]...)
			out = fmt.Appendf(out, "%%%02X", target[i])
			done = i + 1
		}
	}
	if done == 0 {
		return target
	}
	return string(append(out, target[done:]...))
}
