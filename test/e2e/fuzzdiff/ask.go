package fuzzdiff

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"spillway/test/framework/exchange"
)

// ask is one request in the parts that shrinking can leave out. Everything is as it goes over the
// wire.
type ask struct {
	method string
	path   string
	params []string // of the query: "name=value", or whatever else stands between two ampersands
	header []field
	body   string
	lasts  int // how long a watch says it lasts, in seconds; 0: as its parameters say, at most two
}

// field is a line of the header.
type field struct{ name, value string }

func (a ask) clone() ask {
	a.params, a.header = slices.Clone(a.params), slices.Clone(a.header)
	return a
}

// target is path and query. A watch always says how long it lasts: one that the API server would
// hold open is given a second.
func (a ask) target() string {
	params, lasts := a.params, a.lasts
	if lasts == 0 && a.endless() {
		lasts = 1
	}
	if lasts > 0 {
		params = append([]string{fmt.Sprintf("timeoutSeconds=%d", lasts)}, params...) // the first value counts (W-24)
	}
	if len(params) == 0 {
		return a.path
	}
	return a.path + "?" + strings.Join(params, "&")
}

// query is what a server reads of the parameters: what does not parse does not count (W-24).
func (a ask) query() url.Values {
	query, _ := url.ParseQuery(strings.Join(a.params, "&"))
	return query
}

// watches reports that the request may be a watch, as a server reads it.
func (a ask) watches() bool {
	query := a.query()
	if query.Has("watch") && query.Get("watch") != "0" && !strings.EqualFold(query.Get("watch"), "false") {
		return true
	}
	path, err := url.PathUnescape(a.path)
	return err == nil && strings.Contains(path, "/watch")
}

// endless reports that the request may be a watch of more than two seconds.
func (a ask) endless() bool {
	query := a.query()
	if !a.watches() || !query.Has("timeoutSeconds") {
		return a.watches()
	}
	seconds, err := strconv.ParseInt(query.Get("timeoutSeconds"), 10, 64)
	return err == nil && (seconds == 0 || seconds > 2)
}

func (a ask) request() exchange.Request {
	r := exchange.Request{Method: a.method, Target: a.target(), Header: map[string]string{}, Body: a.body}
	for _, f := range a.header {
		r.Header[f.name] = f.value
	}
	return r
}

// momentary reports that the answer is a matter of the moment, so that two answers of one server
// may differ (N-5): it contains the time, or is what a short watch from now delivers before it is
// over.
func (a ask) momentary() bool {
	for _, f := range a.header {
		if strings.Contains(f.value, "as=Table") {
			return true
		}
	}
	short := a.watches() && a.query().Get("resourceVersion") == ""
	return short || strings.Contains(a.target(), "timeoutSeconds=-") || strings.HasPrefix(a.path, "/openapi")
}

// curl is the request as a line for a shell.
func (a ask) curl(base, token string) string {
	line := []string{"curl", "-sik", "--path-as-is"}
	switch a.method {
	case "", http.MethodGet:
	case http.MethodHead:
		line = append(line, "--head")
	default:
		line = append(line, "-X", quote(a.method))
	}
	named := func(name string) bool {
		return slices.ContainsFunc(a.header, func(f field) bool { return strings.EqualFold(f.name, name) })
	}
	if !named("User-Agent") { // curl's own makes answers pretty (W-9)
		line = append(line, "-A", exchange.UserAgent)
	}
	if !named("Accept") {
		line = append(line, "-H", "Accept:") // which leaves it out
	}
	if token != "" && !named("Authorization") {
		line = append(line, "-H", quote("Authorization: Bearer "+token))
	}
	for _, f := range a.header {
		if f.value == "" {
			line = append(line, "-H", quote(f.name+";")) // which sends it empty
		} else {
			line = append(line, "-H", quote(f.name+": "+f.value))
		}
	}
	if a.body != "" {
		line = append(line, "--data-binary", quote(a.body))
	}
	return strings.Join(append(line, quote(base+a.target())), " ")
}

func quote(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }

func (a ask) String() string {
	text := fmt.Sprintf("%s %s", a.method, a.target())
	for _, f := range a.header {
		text += fmt.Sprintf("\n%s: %s", f.name, f.value)
	}
	return text
}
