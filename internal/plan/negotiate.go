package plan

import (
	"net/url"
	"strconv"
	"strings"

	"github.com/munnerz/goautoneg"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1beta1 "k8s.io/apimachinery/pkg/apis/meta/v1beta1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"spillway/internal/apistatus"
	"spillway/internal/object"
	"spillway/internal/source"
)

// AnswerForm is how an answer is written, and how a failure in its place is.
type AnswerForm struct {
	object.Encoding
	// Failure is the form of a Status, for which upstream knows no transforms (W-10).
	Failure apistatus.StatusFormat
}

// requestedForm is what a request is for.
type requestedForm struct {
	source       *source.Source
	isCollection bool
	isWatch      bool
}

// negotiate decides in which form upstream would answer, by both of its stages: the router's for
// built-in resources, and the handler's (W-42). It reports false if only upstream can answer: with
// a refusal, or in a form that is not made here, such as indented JSON (W-9).
//
// If upstream would choose protobuf and there is none here, the next element with the same view is
// chosen.
func negotiate(r Request, query url.Values, a requestedForm) (AnswerForm, bool) {
	isBuiltin := a.source.Resource().Info.Builtin
	if isBuiltin && !isRoutable(r.Accept) {
		return AnswerForm{}, false
	}
	isPretty := WantsPretty(query.Get("pretty"), r.UserAgent)
	failure, ok := NegotiateFailure(r.Accept, isPretty)
	if !ok {
		return AnswerForm{}, false
	}
	var view *object.View
	for _, c := range mediaChoices(r.Accept) {
		if !c.isAllowed(isBuiltin) {
			continue
		}
		v, ok := c.view(a)
		if !ok || view != nil && *view != v || c.format == object.JSON && (c.isPretty || isPretty) && !a.isWatch {
			return AnswerForm{}, false
		}
		if a.source.Codec.Offers(c.format, v) {
			return AnswerForm{
				Encoding: object.Encoding{Format: c.format, View: v, Gzip: acceptsGzip(r.AcceptEncoding)},
				Failure:  failure,
			}, true
		}
		if c.format != object.Protobuf {
			return AnswerForm{}, false
		}
		view = &v
	}
	return AnswerForm{}, false
}

// acceptElementsLimit is how many elements and parameters an Accept header may have that is read
// here: parsed, they are many times as large. Upstream reads more.
const acceptElementsLimit = 1000

// NegotiateFailure is the form of a Status: that of the first element without a transform, or
// indented JSON if there is none (W-10). It reports false if that form is not made here.
func NegotiateFailure(accept string, isPretty bool) (apistatus.StatusFormat, bool) {
	if strings.Count(accept, ",")+strings.Count(accept, ";") >= acceptElementsLimit {
		return apistatus.StatusFormat{Indented: true}, false
	}
	for _, c := range mediaChoices(accept) {
		if c.transform == nil && c.serverVersion == "" {
			isIndented := c.format == object.JSON && (c.isPretty || isPretty)
			return apistatus.StatusFormat{Format: c.format, Indented: isIndented}, !c.isUpstreamOnly
		}
	}
	return apistatus.StatusFormat{Indented: true}, true
}

// isRoutable is the router's stage: some element, cut at its parameters, is literally a type that
// is served (W-42). Upstream may serve CBOR or not: it is not made here in any case.
func isRoutable(accept string) bool {
	if accept == "" {
		return true
	}
	for element := range strings.SplitSeq(accept, ",") {
		media, _, _ := strings.Cut(element, ";")
		switch strings.Trim(media, " ") {
		case "*/*", "application/json", "application/yaml", "application/vnd.kubernetes.protobuf", "application/cbor":
			return true
		}
	}
	return false
}

// mediaChoice is one format that an Accept header allows, in one way.
type mediaChoice struct {
	format        object.Format
	transform     *schema.GroupVersionKind // nil: none
	serverVersion string
	isPretty      bool
	// isUpstreamOnly: the format is not made here, and perhaps not upstream.
	isUpstreamOnly bool
}

// servedFormats are those of upstream, in its order of preference (W-42).
var servedFormats = []struct {
	subtype string
	choice  mediaChoice
}{
	{"json", mediaChoice{format: object.JSON}},
	{"yaml", mediaChoice{format: object.YAML}},
	{"vnd.kubernetes.protobuf", mediaChoice{format: object.Protobuf}},
	{"cbor", mediaChoice{isUpstreamOnly: true}},
}

// mediaChoices are all that an Accept header allows, the best first. They are parsed by upstream's
// own code, because no other orders equal elements the same way.
func mediaChoices(accept string) []mediaChoice {
	if accept == "" {
		return []mediaChoice{servedFormats[0].choice}
	}
	var out []mediaChoice
	for _, clause := range goautoneg.ParseAccept(accept) {
		for _, s := range servedFormats {
			isExact := clause.Type == "application" && clause.SubType == s.subtype
			isWildcard := clause.SubType == "*" && (clause.Type == "application" || clause.Type == "*")
			if !isExact && !isWildcard || s.choice.isUpstreamOnly && isWildcard { // a wildcard allows JSON first
				continue
			}
			c := s.choice
			if c.readParams(clause.Params) {
				out = append(out, c)
			}
		}
	}
	return out
}

// readParams reads the parameters of an element, and reports false if they make it unacceptable
// (W-43).
func (c *mediaChoice) readParams(params map[string]string) bool {
	var transform schema.GroupVersionKind
	for key, value := range params {
		switch key {
		case "as":
			transform.Kind = value
		case "g":
			transform.Group = value
		case "v":
			transform.Version = value
		case "stream":
			if value != "" && (value != "watch" || c.format == object.YAML) {
				return false
			}
			continue
		case "sv":
			c.serverVersion = value
			continue
		case "pretty":
			c.isPretty = value == "1"
			continue
		default:
			continue
		}
		c.transform = &transform
	}
	return true
}

// isAllowed reports whether upstream accepts a choice for an answer that is no failure.
func (c *mediaChoice) isAllowed(isBuiltin bool) bool {
	if c.serverVersion != "" && c.serverVersion != metav1.SchemeGroupVersion.Version {
		return false
	}
	if c.transform == nil {
		return isBuiltin || c.format != object.Protobuf // custom resources have no protobuf form (W-40)
	}
	switch c.transform.GroupVersion() {
	case metav1.SchemeGroupVersion, metav1beta1.SchemeGroupVersion:
	default:
		return false
	}
	switch c.transform.Kind {
	case "PartialObjectMetadata", "PartialObjectMetadataList":
		return true
	case "Table":
		return c.format == object.JSON || c.format == object.YAML
	}
	return false
}

// view is the view of a choice. It is false if that is not made here: a table, which upstream
// prints (W-46), or the metadata of a list as that of an object, or the reverse, which upstream
// refuses (W-44).
func (c *mediaChoice) view(a requestedForm) (object.View, bool) {
	if c.isUpstreamOnly {
		return object.Whole, false
	}
	if c.transform == nil {
		return object.Whole, true
	}
	kind := "PartialObjectMetadata"
	if a.isCollection && !a.isWatch {
		kind = "PartialObjectMetadataList"
	}
	view := object.Metadata
	if c.transform.GroupVersion() == metav1beta1.SchemeGroupVersion {
		view = object.MetadataV1beta1
	}
	return view, c.transform.Kind == kind
}

// acceptsGzip reports whether some element of an Accept-Encoding header is exactly "gzip" (W-6).
func acceptsGzip(header string) bool {
	for element := range strings.SplitSeq(header, ",") {
		if strings.TrimSpace(element) == "gzip" {
			return true
		}
	}
	return false
}

// WantsPretty reports whether upstream would indent the answer of a GET or LIST (W-9).
func WantsPretty(pretty, userAgent string) bool {
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

// EncodingName is an encoding as a metric label.
func EncodingName(e object.Encoding) string {
	name := [...]string{object.JSON: "json", object.Protobuf: "protobuf"}[e.Format]
	if e.View != object.Whole {
		name += "-metadata"
	}
	return name
}
