package exchange

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/fields"
)

// Comparison holds two answers to one request against each other and collects in what they differ,
// beyond the deviations.
type Comparison struct {
	Request         Request
	Direct, Proxied *Answer
	tally           *Tally
	Problems        []string
	Deviation       string  // the V-n that explains the difference from an older API server
	Newest          *Answer // of the newest API server, where Deviation is set
	FromMemory      bool
	OtherFormat     bool    // the proxied answer is in JSON where the direct one is not
	less            *Answer // the one that is a stream with which the other begins
	late            bool    // OutOfTime, found before the newest API server's answer was looked at
}

// FlowControl is on every answer that an API server's handlers gave, and on none that was made from
// memory (W-3).
const FlowControl = "X-Kubernetes-Pf-Flowschema-Uid"

// Compare notes in y which deviations it relied on.
func Compare(y *Tally, r Request, direct, proxied *Answer) *Comparison {
	c := &Comparison{Request: r, Direct: direct, Proxied: proxied, tally: y}
	c.FromMemory = direct.Header.Get(FlowControl) != "" && proxied.Header.Get(FlowControl) == ""
	if c.malformed() {
		return c
	}
	c.statuses()
	c.headers()
	if len(c.Problems) > 0 && direct.Status != proxied.Status {
		c.differ("bodies", Clip(direct.Body), Clip(proxied.Body))
		return c
	}
	c.bodies()
	return c
}

// malformed reports that both refuse what is no request at all: net/http does before any handler
// sees it, and in a few words.
func (c *Comparison) malformed() bool {
	refuses := func(a *Answer) bool {
		return a.Status == http.StatusBadRequest && a.Header.Get("Content-Type") == "text/plain; charset=utf-8" &&
			a.Header.Get("Connection") == "close"
	}
	byServer := c.Direct.Header.Get("Audit-Id") == "" && bytes.HasPrefix(c.Direct.Body, []byte("400 Bad Request"))
	return byServer && refuses(c.Direct) && refuses(c.Proxied) && c.deviate(DevMalformed)
}

func (c *Comparison) differ(what string, direct, proxied any) {
	c.Problems = append(c.Problems, fmt.Sprintf("%s:\n  direct  %v\n  proxied %v", what, direct, proxied))
}

func (c *Comparison) statuses() {
	if c.Direct.Proto != c.Proxied.Proto {
		c.differ("protocol", c.Direct.Proto, c.Proxied.Proto)
	}
	if c.Direct.Status != c.Proxied.Status {
		c.differ("status", c.Direct.Status, c.Proxied.Status)
	}
	if (c.Direct.Cut == nil) != (c.Proxied.Cut == nil) {
		c.differ("end of body", c.Direct.Cut, c.Proxied.Cut)
	}
}

// headers compares every header that either answer has.
func (c *Comparison) headers() {
	names := map[string]struct{}{}
	for _, h := range []http.Header{c.Direct.Header, c.Proxied.Header} {
		for name := range h {
			names[name] = struct{}{}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		direct, proxied := c.Direct.Header.Values(name), c.Proxied.Header.Values(name)
		if !slices.Equal(direct, proxied) && !c.headerMayDiffer(name, direct, proxied) {
			c.differ("header "+name, direct, proxied)
		}
	}
}

// headerMayDiffer applies the deviations that are about headers.
func (c *Comparison) headerMayDiffer(name string, direct, proxied []string) bool {
	chunked := c.Direct.Header.Get("Transfer-Encoding") == "chunked" || c.Direct.Proto == "HTTP/2.0" &&
		c.Direct.Header.Get("Content-Length") == ""
	switch name {
	case "Date", "Audit-Id":
		own := name == "Audit-Id" && c.Request.Header["Audit-ID"] != ""
		return !own && len(direct) == 1 && len(proxied) == 1 && c.deviate(NormPerAnswer)
	case FlowControl, "X-Kubernetes-Pf-Prioritylevel-Uid":
		return c.FromMemory && len(proxied) == 0 && c.deviate(DevNoFlowControl)
	case "Content-Type":
		c.OtherFormat = c.FromMemory && strings.HasPrefix(direct[0], protobufType) &&
			slices.Equal(proxied, []string{"application/json"})
		return c.OtherFormat && c.deviate(DevJSONForProtobuf)
	case "Connection":
		return !c.FromMemory && len(direct) == 0 && c.longLived() && c.deviate(DevClosed)
	case "Transfer-Encoding":
		return chunked && len(proxied) == 0 && c.Proxied.Header.Get("Content-Length") != "" && c.deviate(DevLength)
	case "Content-Length":
		if len(direct) == 0 {
			return chunked && proxied[0] == strconv.Itoa(c.Proxied.Length) && c.deviate(DevLength)
		}
		if len(proxied) == 0 && c.Direct.Proto == "HTTP/2.0" { // where nothing stands in its place
			return !c.FromMemory && Number(direct[0]) > 2048 && c.deviate(DevLength)
		}
		// Bodies of another length are compared as bodies; a length must be that of its body.
		return len(proxied) == 1 && proxied[0] == strconv.Itoa(c.Proxied.Length) && direct[0] == strconv.Itoa(c.Direct.Length)
	}
	return false
}

func (c *Comparison) deviate(id string) bool {
	c.tally.Deviated(id)
	return true
}

// bodies compares bytes, with the few numbers blanked that are a matter of the moment.
func (c *Comparison) bodies() {
	if c.OtherFormat {
		return // compared with another direct answer, in JSON
	}
	if bytes.Equal(c.Direct.Body, c.Proxied.Body) && !isStream(c.Direct.Body) {
		return
	}
	direct, err := c.Direct.readable()
	if err != nil {
		c.Problems = append(c.Problems, "direct: "+err.Error())
	}
	proxied, err := c.Proxied.readable()
	if err != nil {
		c.Problems = append(c.Problems, "proxied: "+err.Error())
	}
	if isStream(direct) || isStream(proxied) {
		c.events(SplitEvents(direct), SplitEvents(proxied))
		return
	}
	direct, proxied = c.blankCurrent(direct), c.blankCurrent(proxied)
	if !c.exact() {
		direct, proxied = c.blankListVersion("direct", direct), c.blankListVersion("proxied", proxied)
	}
	if !bytes.Equal(direct, proxied) {
		c.differ("body", FirstDifference(direct, proxied), FirstDifference(proxied, direct))
	}
}

var current = regexp.MustCompile(`Too large resource version: \d+, current: (\d+)`)

// blankCurrent blanks the moment's resourceVersion in the message of a 504.
func (c *Comparison) blankCurrent(b []byte) []byte {
	return blank(b, current.FindSubmatchIndex(b), func(string) { c.deviate(NormCurrentVersion) })
}

// blank replaces the first group of a match by a placeholder, having shown it.
func blank(b []byte, match []int, show func(text string)) []byte {
	if match == nil {
		return b
	}
	show(string(b[match[2]:match[3]]))
	return slices.Concat(b[:match[2]], []byte("<number>"), b[match[3]:])
}

// In lists the version stands in front of the items where the kind comes first, and after them
// where keys are sorted.
var (
	versionJSON = regexp.MustCompile(`"resourceVersion": ?"(\d+)"`)
	versionYAML = regexp.MustCompile(`resourceVersion: "(\d+)"`)
	tokenText   = regexp.MustCompile(`(?m)(?:"continue": ?"|^ +continue: "?)([A-Za-z0-9_-]+)`) // JSON and YAML
	kindFirst   = regexp.MustCompile(`^\{\s*"kind":`)
	itemsYAML   = regexp.MustCompile(`(?m)^(items|rows):`)
)

// isList reports that a document is a list or a table, whatever its kind is called: that of a
// custom resource's lists need not end in List.
func isList(b []byte) bool {
	if len(b) == 0 || b[0] != '{' {
		return itemsYAML.Match(b)
	}
	var fields map[string]json.RawMessage
	if json.Unmarshal(b, &fields) != nil {
		return false
	}
	return fields["items"] != nil || fields["rows"] != nil
}

// blankListVersion blanks a list's own resourceVersion and the same in its continue token, and
// checks that it is not below the requested one.
func (c *Comparison) blankListVersion(who string, b []byte) []byte {
	if !isList(b) {
		return b
	}
	var version string
	check := func(text string) {
		version = text
		c.deviate(NormListVersion)
		if asked := c.askedVersion(); Number(text) < asked {
			c.Problems = append(c.Problems, fmt.Sprintf("%s: list at %s, asked for %d", who, text, asked))
		}
	}
	switch {
	case kindFirst.Match(b):
		b = blank(b, versionJSON.FindSubmatchIndex(b), check)
	case len(b) > 0 && b[0] == '{':
		b = blank(b, last(versionJSON.FindAllSubmatchIndex(b, -1)), check)
	default:
		b = blank(b, last(versionYAML.FindAllSubmatchIndex(b, -1)), check)
	}
	match := tokenText.FindSubmatchIndex(b)
	if match == nil {
		return b
	}
	token, err := DecodeToken(string(b[match[2]:match[3]]))
	if err != nil || strconv.FormatInt(token.RV, 10) != version {
		c.Problems = append(c.Problems, fmt.Sprintf("%s: continue token %+v (%v) in a list at %s", who, token, err, version))
		return b
	}
	return slices.Concat(b[:match[2]], fmt.Appendf(nil, "<token from %q>", token.Start), b[match[3]:])
}

func last(all [][]int) []int {
	if len(all) == 0 {
		return nil
	}
	return all[len(all)-1]
}

// query is the query of the request, as the server reads it.
func (c *Comparison) query() url.Values {
	_, raw, _ := strings.Cut(c.Request.Target, "?")
	q, _ := url.ParseQuery(raw) // the server drops what does not parse, too
	return q
}

func (c *Comparison) askedVersion() uint64 { return Number(c.query().Get("resourceVersion")) }

// exact reports that the request names the very resourceVersion of its answer (W-63), which zero,
// however it is written, does not (W-27).
func (c *Comparison) exact() bool {
	q := c.query()
	if token, err := DecodeToken(q.Get("continue")); err == nil {
		return token.RV > 0
	}
	limit, _ := strconv.Atoi(q.Get("limit"))
	match := q.Get("resourceVersionMatch")
	return c.askedVersion() > 0 && (match == "Exact" || match == "" && limit > 0 && !c.single())
}

// longLived reports that the request may stay open, reaches beyond the API server, or carries a
// body.
func (c *Comparison) longLived() bool {
	path, _, _ := strings.Cut(c.Request.Target, "?")
	if c.query().Has("watch") || strings.Contains(path, "/watch") || strings.Contains(path, "/proxy/") ||
		c.Request.Body != "" {
		return true
	}
	return slices.ContainsFunc([]string{"/log", "/exec", "/attach", "/portforward", "/proxy"}, func(end string) bool {
		return strings.HasSuffix(path, end)
	})
}

// single reports that the request can find one key at most, because it names it: there a limit does
// not make the resourceVersion an exact one.
func (c *Comparison) single() bool {
	selector, err := fields.ParseSelector(c.query().Get("fieldSelector"))
	if err != nil || c.query().Get("continue") != "" {
		return false
	}
	path, _, _ := strings.Cut(c.Request.Target, "?")
	path = strings.TrimSuffix(path, "/")
	_, named := selector.RequiresExactMatch("metadata.name")
	_, placed := selector.RequiresExactMatch("metadata.namespace")
	clusterScoped := strings.HasSuffix(path, "/nodes") || strings.HasSuffix(path, "/namespaces")
	return named && (placed || clusterScoped || strings.Contains(path, "/namespaces/"))
}

// Number is the resourceVersion that text says, or 0.
func Number(text string) uint64 {
	n, _ := strconv.ParseUint(text, 10, 64) // what is no number counts as unset
	return n
}

// FirstDifference shows a from shortly before where it leaves b.
func FirstDifference(a, b []byte) string {
	i := 0
	for i < len(a) && i < len(b) && a[i] == b[i] {
		i++
	}
	from := max(0, i-60)
	return fmt.Sprintf("%d bytes, from %d: %q", len(a), from, Clip(a[from:]))
}

// Clip is b, or its beginning if that is long; quoted if it is no text.
func Clip(b []byte) string {
	const most = 400
	text, end := b[:min(len(b), most)], ""
	if len(b) > most {
		end = "…"
	}
	if !utf8.Valid(b) {
		return strconv.Quote(string(text)) + end
	}
	return string(text) + end
}
