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

// AnswerForm is how an answer is written, and how it is written if it is a failure instead.
type AnswerForm struct {
	object.Encoding
	// Failure is the form of a Status, for which upstream knows no transforms (W-10).
	Failure apistatus.StatusFormat
}

// requestedForm is what a request asks to be shown.
type requestedForm struct {
	source     *source.Source
	collection bool
	watch      bool
}

// negotiate decides in what form upstream would answer, or reports false if it alone can: it would
// refuse, or answer in a form that is not made here, such as indented JSON (W-9). Both stages of
// upstream are in it: the router's for built-in resources, and the handler's (W-42).
//
// Where upstream would choose protobuf and there is none here, the next element that asks for the
// same view may do.
func negotiate(r Request, query url.Values, a requestedForm) (AnswerForm, bool) {
	builtin := a.source.Resource().Info.Builtin
	if builtin && !routable(r.Accept) {
		return AnswerForm{}, false
	}
	pretty := WantsPretty(query.Get("pretty"), r.UserAgent)
	failure, ok := NegotiateFailure(r.Accept, pretty)
	if !ok {
		return AnswerForm{}, false
	}
	var view *object.View
	for _, c := range mediaChoices(r.Accept) {
		if !c.allowed(builtin) {
			continue
		}
		v, ok := c.view(a)
		if !ok || view != nil && *view != v || c.format == object.JSON && (c.pretty || pretty) && !a.watch {
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

// acceptLimit is how many elements and parameters an Accept header may have that is read here: what
// they become is many times as large as they are. Upstream reads more.
const acceptLimit = 1000

// NegotiateFailure is the form of a Status: that of the first element that asks for no transform.
// If there is none, it is indented JSON (W-10). It is false if that element asks for what is not
// made here.
func NegotiateFailure(accept string, pretty bool) (apistatus.StatusFormat, bool) {
	if strings.Count(accept, ",")+strings.Count(accept, ";") >= acceptLimit {
		return apistatus.StatusFormat{Indented: true}, false
	}
	for _, c := range mediaChoices(accept) {
		if c.transform == nil && c.serverVersion == "" {
			return apistatus.StatusFormat{Format: c.format, Indented: c.format == object.JSON && (c.pretty || pretty)}, !c.unmade
		}
	}
	return apistatus.StatusFormat{Indented: true}, true
}

// routable is the router's stage: some element, cut at its parameters, is literally a type that is
// served (W-42). CBOR, which upstream may serve, makes no difference here: it is not made here.
func routable(accept string) bool {
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
	pretty        bool
	unmade        bool // a format that is not made here, and perhaps not there
}

// served are the formats of upstream, in its order of preference (W-42).
var served = []struct {
	subtype string
	choice  mediaChoice
}{
	{"json", mediaChoice{format: object.JSON}},
	{"yaml", mediaChoice{format: object.YAML}},
	{"vnd.kubernetes.protobuf", mediaChoice{format: object.Protobuf}},
	{"cbor", mediaChoice{unmade: true}},
}

// mediaChoices are all that an Accept header allows, the best first. It reads the header with the
// very code that upstream reads it with, whose order among equals is no other's.
func mediaChoices(accept string) []mediaChoice {
	if accept == "" {
		return []mediaChoice{served[0].choice}
	}
	var out []mediaChoice
	for _, clause := range goautoneg.ParseAccept(accept) {
		for _, s := range served {
			exact := clause.Type == "application" && clause.SubType == s.subtype
			wild := clause.SubType == "*" && (clause.Type == "application" || clause.Type == "*")
			if !exact && !wild || s.choice.unmade && wild { // JSON comes before it, whatever the parameters
				continue
			}
			c := s.choice
			if c.read(clause.Params) {
				out = append(out, c)
			}
		}
	}
	return out
}

// read takes the parameters of an element, or reports false if they make it unacceptable (W-43).
func (c *mediaChoice) read(params map[string]string) bool {
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
			c.pretty = value == "1"
			continue
		default:
			continue
		}
		c.transform = &transform
	}
	return true
}

// allowed reports whether upstream takes an element for an answer that is no failure.
func (c *mediaChoice) allowed(builtin bool) bool {
	if c.serverVersion != "" && c.serverVersion != metav1.SchemeGroupVersion.Version {
		return false
	}
	if c.transform == nil {
		return builtin || c.format != object.Protobuf // custom resources have no protobuf form (W-40)
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

// view is the view that an element asks for, or false if it is not made here, or not for what is
// asked: upstream refuses the metadata of a list as that of an object, and the reverse (W-44); a
// table it prints itself (W-46).
func (c *mediaChoice) view(a requestedForm) (object.View, bool) {
	if c.unmade {
		return object.Whole, false
	}
	if c.transform == nil {
		return object.Whole, true
	}
	kind := "PartialObjectMetadata"
	if a.collection && !a.watch {
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
func WantsPretty(pretty string, userAgent string) bool {
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
