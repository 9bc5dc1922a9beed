package passthrough

import (
	"fmt"
	"net/url"
	"strings"
)

// targetURL is base with the raw request target behind its path. Path and query reach upstream byte
// for byte, because only upstream knows how it reads them (W-21, W-24). Only what VisibleTarget
// encodes differs, which upstream decodes to the same. target must be in origin form. The error is
// net/http's own complaint.
func targetURL(base *url.URL, target string) (*url.URL, error) {
	in, err := url.ParseRequestURI(target)
	if err != nil {
		return nil, err
	}
	raw, query, hasQuery := strings.Cut(VisibleTarget(target), "?")
	raw = strings.TrimSuffix(base.EscapedPath(), "/") + raw
	out := &url.URL{
		Scheme:     base.Scheme,
		Host:       base.Host,
		Path:       strings.TrimSuffix(base.Path, "/") + in.Path,
		RawPath:    raw,
		RawQuery:   query,
		ForceQuery: hasQuery && query == "",
	}
	// net/url re-encodes a path that it would have encoded otherwise. Opaque is written as it is, but
	// would be taken for an authority if it began with two slashes; such a path goes out re-encoded.
	if out.EscapedPath() != raw && !strings.HasPrefix(raw, "//") {
		out.Opaque = raw
	}
	return out, nil
}

// VisibleTarget percent-encodes what a request line cannot carry or parties read differently there:
// all but visible ASCII, and '#', behind which some see a fragment. It never completes an escape
// that was malformed: no hexadecimal digit is encoded, and none begins an encoded byte.
func VisibleTarget(target string) string {
	var out []byte
	copied := 0 // bytes of target that are in out
	for i := range len(target) {
		if b := target[i]; b <= ' ' || b >= 0x7f || b == '#' {
			out = append(out, target[copied:i]...)
			out = fmt.Appendf(out, "%%%02X", b)
			copied = i + 1
		}
	}
	if copied == 0 {
		return target
	}
	return string(append(out, target[copied:]...))
}
