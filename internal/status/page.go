package status

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"html/template"
	"net/http"
	"net/url"
)

// Page serves reports in the formats below. The page loads nothing else, and also works without its
// script.
type Page struct {
	reporter *Reporter
	path     string
}

// NewPage makes the page that is served at a path.
func NewPage(reporter *Reporter, path string) *Page { return &Page{reporter: reporter, path: path} }

// FormatParameter names the parameter of a request that has the format of its answer.
const FormatParameter = "format"

// The formats.
const (
	formatHTML     = "html"
	FormatJSON     = "json"
	formatFragment = "fragment" // what the page's script puts in place of what it shows
)

var (
	//go:embed page.html
	pageHTML string
	//go:embed page.css
	pageCSS string
	//go:embed page.js
	pageJS string

	pages = template.Must(template.New("").Parse(pageHTML))

	// policy lets a browser run the script and the style of this page and no injected ones, and
	// connect to this listener only.
	policy = "default-src 'none'; script-src " + sourceOf(pageJS) + "; style-src " + sourceOf(pageCSS) +
		"; connect-src 'self'; img-src data:; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)

// sourceOf names text in a Content-Security-Policy.
func sourceOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}

// ServeHTTP implements http.Handler.
func (p *Page) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Content-Security-Policy", policy)
	values := r.URL.Query()
	format := cmp.Or(values.Get(FormatParameter), formatHTML)
	q, err := ParseQuery(values)
	switch {
	case err != nil:
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	case format != formatHTML && format != FormatJSON && format != formatFragment:
		http.Error(w, FormatParameter+": must be html, json or fragment", http.StatusBadRequest)
		return
	}
	report, err := p.reporter.Report(r.Context())
	if err != nil {
		http.Error(w, "no report: "+err.Error(), http.StatusServiceUnavailable)
		return
	}
	var out bytes.Buffer
	contentType, err := p.write(&out, report.Select(q), q, format)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	h.Set("Content-Type", contentType)
	_, _ = w.Write(out.Bytes()) // the client may be gone
}

// write writes the report in one of the formats.
func (p *Page) write(out *bytes.Buffer, report *Report, q Query, format string) (contentType string, err error) {
	if format == FormatJSON {
		return "application/json", json.NewEncoder(out).Encode(report)
	}
	name := "page"
	if format == formatFragment {
		name = "main"
	}
	return "text/html; charset=utf-8", pages.ExecuteTemplate(out, name, p.data(report, q))
}

// pageData is what the template shows.
type pageData struct {
	*Report
	Query    Query
	CSS      template.CSS
	JS       template.JS
	Tables   []section
	JSON     string // the URL of the same as JSON
	MaxLimit int
}

// section is a table with its headline.
type section struct {
	ID, Name, Caption string
	Note              string // above the table
	Empty             string // in place of its rows
	Table
	Links []string // of the columns, to the page in their order; nil: the table has one order
}

// data arranges the report in tables, with links to their other orders.
func (p *Page) data(report *Report, q Query) pageData {
	watches := section{
		ID: "watches", Name: "Watches", Note: report.Shown(), Empty: "There are no watches.",
		Caption: "Watches that are served from memory, with how far their clients are behind", Table: report.WatchTable(q),
	}
	watches.Links = p.links(watches.Columns, func(next Order) Query {
		return Query{WatchOrder: next, ResourceOrder: q.ResourceOrder, Limit: q.Limit}
	})
	resources := section{
		ID: "resources", Name: "Resources", Empty: "Nothing is mirrored.",
		Caption: "Resources that are mirrored, with how current they are", Table: report.ResourceTable(q),
	}
	resources.Links = p.links(resources.Columns, func(next Order) Query {
		return Query{WatchOrder: q.WatchOrder, ResourceOrder: next, Limit: q.Limit}
	})
	evictions := section{
		ID: "evictions", Name: "Evicted last", Empty: "No client has been evicted.",
		Caption: "The last clients whose watches were ended because they read too slowly, or nothing",
		Table:   report.EvictionTable(),
	}
	rejections := section{
		ID: "rejections", Name: "Rejected last", Empty: "No request has been rejected.",
		Caption: "The last users whose requests limits have rejected with 429, with the number of these requests",
		Table:   report.RejectionTable(),
	}
	asJSON := q.Values()
	asJSON.Set(FormatParameter, FormatJSON)
	return pageData{
		Report: report, Query: q, CSS: template.CSS(pageCSS), JS: template.JS(pageJS), // #nosec G203 -- our own files
		Tables: []section{resources, watches, evictions, rejections}, JSON: p.path + "?" + asJSON.Encode(),
		MaxLimit: MaxLimit,
	}
}

// links lead from the heads of columns to the page in another order.
func (p *Page) links(columns []Column, reordered func(Order) Query) []string {
	links := make([]string, len(columns))
	for i, c := range columns {
		links[i] = (&url.URL{Path: p.path, RawQuery: reordered(c.Next).Values().Encode()}).String()
	}
	return links
}
