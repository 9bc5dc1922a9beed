package status

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/html"
)

// serving is a page of one report.
func serving(t *testing.T, report *Report, err error) http.Handler {
	t.Helper()
	reporter := NewReporter(func(context.Context) (*Report, error) { return report, err })
	t.Cleanup(reporter.Close)
	return NewPage(reporter, "/statusz")
}

func get(t *testing.T, h http.Handler, query string) (*http.Response, string) {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/statusz?"+query, nil))
	response := w.Result()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response, string(body)
}

// elements are those of a name, as a browser finds them.
func elements(t *testing.T, body, name string) (found []*html.Node) {
	t.Helper()
	document, err := html.Parse(strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for n := range document.Descendants() {
		if n.Type == html.ElementNode && n.Data == name {
			found = append(found, n)
		}
	}
	return found
}

func attribute(n *html.Node, name string) string {
	for _, a := range n.Attr {
		if a.Key == name {
			return a.Val
		}
	}
	return ""
}

func text(n *html.Node) string {
	var b strings.Builder
	for d := range n.Descendants() {
		if d.Type == html.TextNode {
			b.WriteString(d.Data)
		}
	}
	return b.String()
}

// Whatever a client calls itself, it is text.
func TestHostileText(t *testing.T) {
	hostile := []string{
		`<script>alert(1)</script>`, `"><img src=x onerror=alert(1)>`, `' onmouseover='alert(1)`,
		`</style><script>alert(1)</script>`, "\x1b]0;owned\x07\x1b[2J\x1b[31m", "a\r\nb\tc\x00",
		"\u202egnp.exe", "{{.}}", "javascript:alert(1)", "\xff\xfe",
	}
	for _, evil := range hostile {
		r := sample()
		r.Watches.Items[0].UserAgent, r.Watches.Items[0].User, r.Watches.Items[0].LabelSelector = evil, evil, evil
		r.Evictions[0].UserAgent, r.Upstream.Host, r.Version = evil, evil, evil
		r.Resources[0].Resource, r.Resources[0].Error = evil, evil
		r.Rejections[0].User, r.Rejections[0].Reason = evil, evil
		r.Ended = map[string]uint64{evil: 1}
		page := serving(t, r, nil)
		_, body := get(t, page, "")
		if n := len(elements(t, body, "script")); n != 1 {
			t.Errorf("%q: %d scripts", evil, n)
		}
		if n := len(elements(t, body, "img")) + len(elements(t, body, "style")) - 1; n != 0 {
			t.Errorf("%q: it made elements", evil)
		}
		document, err := html.Parse(strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		for n := range document.Descendants() {
			for _, a := range n.Attr {
				if strings.HasPrefix(a.Key, "on") {
					t.Errorf("%q: <%s %s>", evil, n.Data, a.Key)
				}
			}
		}
		var plain strings.Builder
		if err := r.WriteText(&plain, DefaultQuery()); err != nil {
			t.Fatal(err)
		}
		for _, shown := range []string{body, plain.String()} {
			if i := strings.IndexFunc(strings.NewReplacer("\n", "", "\t", "").Replace(shown), func(c rune) bool {
				return c < ' ' || c == '\u202e' || c >= 0x7f && c < 0xa0
			}); i >= 0 {
				t.Errorf("%q: a control character is shown", evil)
			}
		}
		response, body := get(t, page, "format=json")
		var again Report
		if err := json.Unmarshal([]byte(body), &again); err != nil ||
			response.Header.Get("Content-Type") != "application/json" {
			t.Errorf("%q: %v, %s", evil, err, response.Header.Get("Content-Type"))
		}
	}
}

// The page works as a table without its script: links sort it, by all columns and both ways.
func TestPageSortsByLinks(t *testing.T) {
	page := serving(t, crowd(3), nil)
	first := func(body string) string {
		for _, n := range elements(t, body, "tbody") {
			if attribute(n, "id") != "watches-body" {
				continue
			}
			for row := range n.Descendants() {
				if row.Data == "th" {
					return text(row)
				}
			}
		}
		return ""
	}
	linked := func(body, id string) (string, string) {
		for _, n := range elements(t, body, "a") {
			if attribute(n, "id") == id {
				_, query, _ := strings.Cut(attribute(n, "href"), "?")
				return query, attribute(n.Parent, "aria-sort")
			}
		}
		t.Fatalf("no link %s", id)
		return "", ""
	}
	f := func(query, wantFirst, link, wantSort, wantNext string) {
		t.Helper()
		_, body := get(t, page, query)
		next, sorted := linked(body, link)
		if got := first(body); got != wantFirst || sorted != wantSort || next != wantNext {
			t.Errorf("?%s: %s first, %s is %q and leads to %q; want %s, %q, %q", query, got, link, sorted, next, wantFirst,
				wantSort, wantNext)
		}
	}
	f("", "user-0002", "watches-by-lag", "descending", "sort=-lag")
	f("sort=-lag", "user-0000", "watches-by-lag", "ascending", "")
	f("sort=-lag", "user-0000", "watches-by-user", "", "sort=user")
	f("sort=user", "user-0000", "watches-by-user", "ascending", "sort=-user")
	f("sort=-user", "user-0002", "watches-by-user", "descending", "sort=user")
	f("sort=user&limit=2", "user-0000", "resources-by-objects", "", "limit=2&resources=objects&sort=user")
	_, body := get(t, page, "limit=2")
	if !strings.Contains(body, "2 of 3 watches, the first by lag; 1 more are not shown.") {
		t.Error("it does not say how many are left out")
	}
}

// What the browser is allowed to run is exactly what is in the page, and nothing of it comes from
// elsewhere.
func TestPolicy(t *testing.T) {
	response, body := get(t, serving(t, sample(), nil), "")
	policy := response.Header.Get("Content-Security-Policy")
	for _, name := range []string{"script", "style"} {
		for _, n := range elements(t, body, name) {
			if !strings.Contains(policy, name+"-src "+sourceOf(n.FirstChild.Data)+";") {
				t.Errorf("the policy does not allow the page's own %s", name)
			}
		}
	}
	if strings.Contains(policy, "unsafe") || !strings.HasPrefix(policy, "default-src 'none';") {
		t.Error(policy)
	}
	if found := regexp.MustCompile(`(?:src|href)="(?:https?:)?//`).FindString(body); found != "" {
		t.Errorf("an asset from elsewhere: %s", found)
	}
	if strings.Contains(body, ` style="`) {
		t.Error("an inline style, which the policy forbids")
	}
	for header, want := range map[string]string{"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff",
		"Referrer-Policy": "no-referrer"} {
		if got := response.Header.Get(header); got != want {
			t.Errorf("%s: %q", header, got)
		}
	}
}

func TestPageAnswers(t *testing.T) {
	page := serving(t, sample(), nil)
	f := func(page http.Handler, query string, code int, contentType, part string) {
		t.Helper()
		response, body := get(t, page, query)
		if response.StatusCode != code || response.Header.Get("Content-Type") != contentType ||
			!strings.Contains(body, part) {
			t.Errorf("?%s: %d %s\n%s", query, response.StatusCode, response.Header.Get("Content-Type"), body)
		}
	}
	f(page, "", 200, "text/html; charset=utf-8", "<title>Spillway status</title>")
	f(page, "format=fragment", 200, "text/html; charset=utf-8", `id="watches-body"`)
	f(page, "format=json&limit=1", 200, "application/json", `"total":2,"sort":"lag","limit":1,`)
	f(page, "format=xml", 400, "text/plain; charset=utf-8", "must be html, json or fragment")
	f(page, "sort=x", 400, "text/plain; charset=utf-8", "must be one of")
	f(serving(t, nil, errors.New("the proxy is stopping")), "", 503, "text/plain; charset=utf-8", "the proxy is stopping")
	if _, body := get(t, page, "format=fragment"); strings.Contains(body, "<script") || strings.Contains(body, "<html") {
		t.Error("the fragment is a whole page")
	}
	empty := &Report{At: noon.Add(time.Second)}
	f(serving(t, empty, nil), "", 200, "text/html; charset=utf-8", "There are no watches.")
}
