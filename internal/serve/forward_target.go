package serve

import (
	"net/url"
	"strings"
)

// targetURL is base with the raw request target behind its path: path and query reach upstream byte for byte, since only
// upstream knows how it reads them (W-21, W-24). target must be in origin form. The error is net/http's own complaint.
func targetURL(base *url.URL, target string) (*url.URL, error) {
	in, err := url.ParseRequestURI(target)
	if err != nil {
		return nil, err
	}
	raw, query, asked := strings.Cut(target, "?")
	raw = strings.TrimSuffix(base.EscapedPath(), "/") + raw
	out := &url.URL{
		Scheme:     base.Scheme,
		Host:       base.Host,
		Path:       strings.TrimSuffix(base.Path, "/") + in.Path,
		RawPath:    raw,
		RawQuery:   query,
		ForceQuery: asked && query == "",
	}
	// net/url re-encodes a path that it would have encoded otherwise. Opaque is written as it is, but would be taken
	// for an authority if it began with two slashes; such a path goes out re-encoded.
	if out.EscapedPath() != raw && !strings.HasPrefix(raw, "//") {
		out.Opaque = raw
	}
	return out, nil
}
