package serve

import (
	"mime"
	"slices"
	"strconv"
	"strings"
)

// protobuf is the media type that typed clients ask for first. It is not made here: such a request is answered in JSON where
// its Accept allows that too (design D9).
const protobuf = "application/vnd.kubernetes.protobuf"

// acceptsJSON reports whether upstream, asked with this Accept header, would answer with plain JSON, or would have a
// preference for protobuf and take plain JSON as well. Whatever is not clear, and every transform, is not: false (W-42, W-43).
func acceptsJSON(accept string) bool {
	if strings.TrimSpace(accept) == "" {
		return true
	}
	for _, e := range acceptElements(accept) {
		switch {
		case e.plain && (e.media == "application/json" || e.media == "*/*"):
			return true
		case e.plain && e.media == protobuf:
			continue
		default:
			return false
		}
	}
	return false
}

// acceptElement is one alternative of an Accept header.
type acceptElement struct {
	media string
	q     float64
	plain bool // it has no parameter that changes the answer
}

// acceptElements are the alternatives in upstream's order of preference: by q, wildcards last among equals.
func acceptElements(accept string) []acceptElement {
	var out []acceptElement
	for _, text := range strings.Split(accept, ",") {
		media, params, err := mime.ParseMediaType(text)
		e := acceptElement{media: media, q: 1, plain: err == nil && strings.HasPrefix(strings.TrimSpace(text), media)}
		for k, v := range params {
			switch {
			case k == "q":
				q, err := strconv.ParseFloat(v, 64)
				e.plain = e.plain && err == nil && q >= 0 // not NaN, which has no order
				e.q = q
			case k == "charset", k == "stream" && v == "watch":
			default:
				e.plain = false
			}
		}
		out = append(out, e)
	}
	slices.SortStableFunc(out, func(a, b acceptElement) int {
		switch {
		case a.q != b.q && a.q > b.q:
			return -1
		case a.q != b.q:
			return 1
		case a.media == "*/*" && b.media != "*/*":
			return 1
		case a.media != "*/*" && b.media == "*/*":
			return -1
		}
		return 0
	})
	return out
}

// wantsPretty reports whether upstream would indent the answer of a GET or LIST (W-9).
func wantsPretty(pretty string, userAgent string) bool {
	if pretty != "" {
		yes, _ := strconv.ParseBool(pretty)
		return yes
	}
	for _, browser := range []string{"curl", "Wget", "Mozilla/5.0"} {
		if strings.HasPrefix(userAgent, browser) {
			return true
		}
	}
	return false
}
