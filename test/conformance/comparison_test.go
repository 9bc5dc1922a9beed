package conformance

import (
	"bytes"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// comparison holds two answers to one request against each other and collects in what they differ, beyond the deviations.
type comparison struct {
	request         request
	direct, proxied *answer
	tally           *tally
	problems        []string
	fromMemory      bool
	otherFormat     bool // the proxied answer is in JSON where the direct one is not
}

// flowControl is on every answer that an apiserver's handlers gave, and on none that was made from memory (W-3).
const flowControl = "X-Kubernetes-Pf-Flowschema-Uid"

func compare(y *tally, r request, direct, proxied *answer) *comparison {
	c := &comparison{request: r, direct: direct, proxied: proxied, tally: y}
	c.fromMemory = direct.header.Get(flowControl) != "" && proxied.header.Get(flowControl) == ""
	c.statuses()
	c.headers()
	if len(c.problems) > 0 && direct.status != proxied.status {
		c.differ("bodies", clip(direct.body), clip(proxied.body))
		return c
	}
	c.bodies()
	return c
}

func (c *comparison) differ(what string, direct, proxied any) {
	c.problems = append(c.problems, fmt.Sprintf("%s:\n  direct  %v\n  proxied %v", what, direct, proxied))
}

func (c *comparison) statuses() {
	if c.direct.status != c.proxied.status {
		c.differ("status", c.direct.status, c.proxied.status)
	}
	if (c.direct.cut == nil) != (c.proxied.cut == nil) {
		c.differ("end of body", c.direct.cut, c.proxied.cut)
	}
}

// headers compares every header that either answer has.
func (c *comparison) headers() {
	names := map[string]struct{}{}
	for _, h := range []http.Header{c.direct.header, c.proxied.header} {
		for name := range h {
			names[name] = struct{}{}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		direct, proxied := c.direct.header.Values(name), c.proxied.header.Values(name)
		if !slices.Equal(direct, proxied) && !c.headerMayDiffer(name, direct, proxied) {
			c.differ("header "+name, direct, proxied)
		}
	}
}

// headerMayDiffer applies the deviations that are about headers.
func (c *comparison) headerMayDiffer(name string, direct, proxied []string) bool {
	chunked := c.direct.header.Get("Transfer-Encoding") == "chunked"
	switch name {
	case "Date", "Audit-Id":
		own := name == "Audit-Id" && c.request.header["Audit-ID"] != ""
		return !own && len(direct) == 1 && len(proxied) == 1 && c.deviate(NormPerAnswer)
	case flowControl, "X-Kubernetes-Pf-Prioritylevel-Uid":
		return c.fromMemory && len(proxied) == 0 && c.deviate(DevNoFlowControl)
	case "Warning":
		return c.fromMemory && len(proxied) == 0 && c.deviate(DevNoWarning)
	case "Content-Encoding", "Vary":
		return c.fromMemory && c.direct.header.Get("Content-Encoding") == "gzip" && len(proxied) == 0 && c.deviate(DevNoGzip)
	case "Content-Type":
		c.otherFormat = c.fromMemory && strings.HasPrefix(direct[0], "application/vnd.kubernetes.protobuf") && slices.Equal(proxied, []string{"application/json"})
		return c.otherFormat && c.deviate(DevJSONForProtobuf)
	case "Connection":
		return !c.fromMemory && len(direct) == 0 && c.longLived() && c.deviate(DevClosed)
	case "Transfer-Encoding":
		return chunked && len(proxied) == 0 && c.proxied.header.Get("Content-Length") != "" && c.deviate(DevLength)
	case "Content-Length":
		if len(direct) == 0 {
			return chunked && proxied[0] == strconv.Itoa(c.proxied.length) && c.deviate(DevLength)
		}
		// Bodies of another length are compared as bodies; a length must be that of its body.
		return len(proxied) == 1 && proxied[0] == strconv.Itoa(c.proxied.length) && direct[0] == strconv.Itoa(c.direct.length)
	}
	return false
}

func (c *comparison) deviate(id string) bool {
	c.tally.deviated(id)
	return true
}

// bodies compares bytes, with the few numbers blanked that are a matter of the moment.
func (c *comparison) bodies() {
	if c.otherFormat {
		return // compared with another direct answer, in JSON
	}
	if isStream(c.direct.body) || isStream(c.proxied.body) {
		c.events(splitEvents(c.direct.body), splitEvents(c.proxied.body))
		return
	}
	direct, proxied := c.blankCurrent(c.direct.body), c.blankCurrent(c.proxied.body)
	if !c.exact() {
		direct, proxied = c.blankListVersion("direct", direct), c.blankListVersion("proxied", proxied)
	}
	if !bytes.Equal(direct, proxied) {
		c.differ("body", firstDifference(direct, proxied), firstDifference(proxied, direct))
	}
}

var current = regexp.MustCompile(`Too large resource version: \d+, current: (\d+)`)

// blankCurrent blanks the moment's resourceVersion in the message of a 504.
func (c *comparison) blankCurrent(b []byte) []byte {
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

// In lists the version stands before the items where the kind comes first, and after them where keys are sorted.
var (
	versionJSON = regexp.MustCompile(`"resourceVersion": ?"(\d+)"`)
	versionYAML = regexp.MustCompile(`resourceVersion: "(\d+)"`)
	tokenJSON   = regexp.MustCompile(`"continue": ?"([A-Za-z0-9_-]+)"`)
	headOfList  = regexp.MustCompile(`^\{\s*"kind": ?"(\w+List|Table)"`)
	someList    = regexp.MustCompile(`"?kind"?: ?"?(\w+List|Table)\b`)
)

// blankListVersion blanks a list's own resourceVersion and the same in its continue token, and checks that it is not below
// what was asked for.
func (c *comparison) blankListVersion(who string, b []byte) []byte {
	if !someList.Match(b) {
		return b
	}
	var version string
	check := func(text string) {
		version = text
		c.deviate(NormListVersion)
		if asked := c.askedVersion(); number(text) < asked {
			c.problems = append(c.problems, fmt.Sprintf("%s: list at %s, asked for %d", who, text, asked))
		}
	}
	switch {
	case headOfList.Match(b):
		b = blank(b, versionJSON.FindSubmatchIndex(b), check)
	case len(b) > 0 && b[0] == '{':
		b = blank(b, last(versionJSON.FindAllSubmatchIndex(b, -1)), check)
	default:
		b = blank(b, last(versionYAML.FindAllSubmatchIndex(b, -1)), check)
	}
	match := tokenJSON.FindSubmatchIndex(b)
	if match == nil {
		return b
	}
	token, err := decodeToken(string(b[match[2]:match[3]]))
	if err != nil || strconv.FormatInt(token.RV, 10) != version {
		c.problems = append(c.problems, fmt.Sprintf("%s: continue token %+v (%v) in a list at %s", who, token, err, version))
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

// query is what the request asks, as the server reads it.
func (c *comparison) query() url.Values {
	_, raw, _ := strings.Cut(c.request.target, "?")
	q, _ := url.ParseQuery(raw) // the server drops what does not parse, too
	return q
}

func (c *comparison) askedVersion() uint64 { return number(c.query().Get("resourceVersion")) }

// exact reports that the request names the very resourceVersion of its answer (W-63).
func (c *comparison) exact() bool {
	q := c.query()
	if token, err := decodeToken(q.Get("continue")); err == nil {
		return token.RV > 0
	}
	limit, _ := strconv.Atoi(q.Get("limit"))
	match := q.Get("resourceVersionMatch")
	return match == "Exact" || match == "" && limit > 0 && c.askedVersion() > 0 && !c.single()
}

// longLived reports that the request may stay open, reaches beyond the apiserver, or carries a body.
func (c *comparison) longLived() bool {
	path, _, _ := strings.Cut(c.request.target, "?")
	return c.query().Has("watch") || strings.Contains(path, "/watch") || strings.HasSuffix(path, "/log") || strings.Contains(path, "/proxy/") || c.request.body != ""
}

// single reports that the request can find one key at most: there a limit does not make the resourceVersion an exact one.
func (c *comparison) single() bool {
	path, _, _ := strings.Cut(c.request.target, "?")
	clusterScoped := strings.HasSuffix(path, "/nodes") || strings.HasSuffix(path, "/namespaces")
	return strings.HasPrefix(c.query().Get("fieldSelector"), "metadata.name=") && (clusterScoped || strings.Contains(path, "/namespaces/"))
}

func number(text string) uint64 {
	n, _ := strconv.ParseUint(text, 10, 64) // what is no number asks for nothing
	return n
}

// firstDifference shows a from shortly before where it leaves b.
func firstDifference(a, b []byte) string {
	i := 0
	for i < len(a) && i < len(b) && a[i] == b[i] {
		i++
	}
	from := max(0, i-60)
	return fmt.Sprintf("%d bytes, from %d: %q", len(a), from, clip(a[from:]))
}

func clip(b []byte) string {
	const most = 400
	if len(b) <= most {
		return string(b)
	}
	return string(b[:most]) + "…"
}
