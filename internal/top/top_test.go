package top

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"
	"go.uber.org/goleak"

	"spillway/internal/status"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// crowd is a report of n watches: the i-th lags i events, and is user i's.
func crowd(n int) *status.Report {
	r := &status.Report{At: time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC), Version: "v1"}
	for i := range 9 {
		r.Resources = append(r.Resources, &status.Resource{Resource: fmt.Sprint("resource-", i), Synced: true, Watches: i})
	}
	r.Watches.Total = n
	for i := range n {
		r.Watches.Items = append(r.Watches.Items, &status.Watch{
			ID: uint64(i + 1), User: fmt.Sprintf("user-%03d", i), UserAgent: "agent", LagSeconds: float64(i),
			LagEvents: uint64(i), Phase: "live",
		})
	}
	return r
}

// proxy answers requests with a report.
func proxy(t *testing.T, report *status.Report, answer func(http.ResponseWriter, *http.Request) bool) *Fetcher {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if answer != nil && answer(w, r) {
			return
		}
		q, err := status.ParseQuery(r.URL.Query())
		if err != nil || r.URL.Path != "/statusz" || r.URL.Query().Get("format") != "json" {
			t.Errorf("asked for %s: %v", r.URL, err)
		}
		_ = json.NewEncoder(w).Encode(report.Select(q))
	}))
	t.Cleanup(server.Close)
	base, err := ParseBase(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{DisableKeepAlives: true}
	return &Fetcher{Base: base, Transport: transport}
}

// screen is a model as it would be shown.
func screen(t *testing.T, m *model) []string {
	t.Helper()
	lines := m.lines()
	if len(lines) > m.height {
		t.Errorf("%d lines on a screen of %d", len(lines), m.height)
	}
	var plain []string
	for _, line := range lines {
		if width := ansi.StringWidth(line); width > m.width {
			t.Errorf("%d columns on a screen of %d: %q", width, m.width, line)
		}
		plain = append(plain, ansi.Strip(line))
	}
	return plain
}

func open(t *testing.T, client *Fetcher, width, height int) *model {
	t.Helper()
	o := Options{Client: client, Interval: time.Second, Order: status.DefaultQuery().Watches}
	report, err := client.Report(t.Context(), o.query())
	if err != nil {
		t.Fatal(err)
	}
	m := newModel(t.Context(), o, report)
	m.Update(tea.WindowSizeMsg{Width: width, Height: height})
	return m
}

// press presses a key, and lets what it asks for be answered.
func press(m *model, key tea.Key) {
	_, command := m.Update(tea.KeyPressMsg(key))
	if command == nil {
		return
	}
	m.Update(command())
}

// row is the first watch on the screen.
func row(t *testing.T, m *model) string {
	t.Helper()
	for _, line := range screen(t, m) {
		if strings.HasPrefix(line, "user-") {
			user, _, _ := strings.Cut(line, " ")
			return user
		}
	}
	t.Fatalf("no watch on the screen:\n%s", strings.Join(screen(t, m), "\n"))
	return ""
}

func TestKeys(t *testing.T) {
	m := open(t, proxy(t, crowd(700), nil), 120, 30)
	f := func(key tea.Key, want string) {
		t.Helper()
		if press(m, key); row(t, m) != want {
			t.Errorf("after %s: %s, want %s", tea.KeyPressMsg(key), row(t, m), want)
		}
	}
	if got := row(t, m); got != "user-699" {
		t.Errorf("begins with %s", got)
	}
	f(tea.Key{Code: tea.KeyDown}, "user-698")
	f(tea.Key{Code: tea.KeyUp}, "user-699")
	f(tea.Key{Code: tea.KeyUp}, "user-699")
	f(tea.Key{Code: tea.KeyHome}, "user-699")
	f(tea.Key{Code: 'r', Text: "r"}, "user-000") // those that the first report left out, too
	f(tea.Key{Code: 'r', Text: "r"}, "user-699")
	f(tea.Key{Code: tea.KeyLeft}, "user-000") // by user
	f(tea.Key{Code: tea.KeyRight}, "user-699")
	f(tea.Key{Code: 'p', Text: "p"}, "user-699")
	if !strings.Contains(strings.Join(screen(t, m), "\n"), "paused") {
		t.Error("it does not say that it is paused")
	}
	press(m, tea.Key{Code: tea.KeyEnd})
	last := screen(t, m)
	if !strings.HasPrefix(last[len(last)-2], "user-200 ") {
		t.Errorf("the end is %q", last[len(last)-2])
	}
	_, command := m.Update(tea.KeyPressMsg(tea.Key{Code: 'q', Text: "q"}))
	if _, quits := command().(tea.QuitMsg); !quits {
		t.Error("q does not end it")
	}
}

// What does not fit is left out or cut, and what is there fits, whatever the size.
func TestSizes(t *testing.T) {
	client := proxy(t, crowd(50), nil)
	for _, width := range []int{1, 10, 40, 80, 200} {
		for _, height := range []int{1, 5, 24, 100} {
			m := open(t, client, width, height)
			screen(t, m)
			m.failed = errors.New("no answer")
			screen(t, m)
		}
	}
}

// Whatever a client calls itself moves no cursor and colors nothing.
func TestHostileText(t *testing.T) {
	report := crowd(1)
	const evil = "\x1b[2J\x1b]0;owned\x07\u009b31m\r\n\u202eevil"
	w := report.Watches.Items[0]
	w.User, w.UserAgent, w.LabelSelector, w.Peer, w.Phase = evil, evil, evil, evil, evil
	report.Version, report.Upstream.Host, report.Resources[0].Resource = evil, evil, evil
	report.Upstream.StaleResources, report.Ended = []string{evil}, map[string]uint64{evil: 1}
	m := open(t, proxy(t, report, nil), 300, 40)
	m.failed = errors.New(evil)
	all := strings.Join(m.lines(), "\n")
	for _, style := range []string{bold, faint, inverse, red, plain} {
		all = strings.ReplaceAll(all, style, "")
	}
	if i := strings.IndexFunc(all, func(r rune) bool {
		return r < ' ' && r != '\n' || r >= 0x7f && r < 0xa0 || r == '\u202e'
	}); i >= 0 {
		t.Errorf("on the screen: %q", all[max(0, i-20):min(len(all), i+20)])
	}
}

// A proxy that does not answer is said not to, and what it said last stays.
func TestFailures(t *testing.T) {
	down := false
	client := proxy(t, crowd(3), func(w http.ResponseWriter, _ *http.Request) bool {
		if down {
			http.Error(w, "no report: the proxy is stopping", http.StatusServiceUnavailable)
		}
		return down
	})
	m := open(t, client, 100, 24)
	down = true
	m.Update(m.ask()())
	if shown := strings.Join(screen(t, m), "\n"); !strings.Contains(shown, "not refreshed") ||
		!strings.Contains(shown, "503: no report: the proxy is stopping") || row(t, m) != "user-002" {
		t.Errorf("shows\n%s", shown)
	}
	down = false
	m.Update(m.ask()())
	if shown := strings.Join(screen(t, m), "\n"); strings.Contains(shown, "not refreshed") {
		t.Errorf("shows\n%s", shown)
	}
}

func TestClient(t *testing.T) {
	token := filepath.Join(t.TempDir(), "token")
	f := func(code int, contentType, body, want string) {
		t.Helper()
		client := proxy(t, nil, func(w http.ResponseWriter, r *http.Request) bool {
			written, err := os.ReadFile(token)
			if bearer := r.Header.Get("Authorization"); (err == nil) != (bearer == "Bearer "+
				strings.TrimSpace(string(written))) {
				t.Errorf("asked as %q", bearer)
			}
			w.Header().Set("Content-Type", contentType)
			w.Header().Set("Location", "http://elsewhere.example.com/")
			w.WriteHeader(code)
			fmt.Fprint(w, body)
			return true
		})
		if _, err := os.Stat(token); err == nil {
			client.TokenFile = token
		}
		_, err := client.Report(t.Context(), status.DefaultQuery())
		if err == nil || !strings.Contains(err.Error(), want) || strings.ContainsAny(err.Error(), "\n\x1b") {
			t.Errorf("%d %s: %v, want a line with %q", code, body, err, want)
		}
	}
	f(401, "application/json", `{"kind":"Status","message":"Unauthorized"}`,
		"401: Unauthorized: --token-file names a token")
	f(403, "text/plain", "forbidden:\nno\x1b[2J", "403: forbidden: no\ufffd[2J: the user must be allowed to get /statusz")
	f(200, "text/html", "<!doctype html>", "answers what is no report")
	f(302, "text/html", "", "302") // redirects are not followed
	f(404, "text/plain", "404 page not found\n", "404: 404 page not found")
	for _, renewed := range []string{"first\n", "second\n"} {
		if err := os.WriteFile(token, []byte(renewed), 0o600); err != nil {
			t.Fatal(err)
		}
		f(401, "application/json", `{}`, "401")
	}
	client := proxy(t, crowd(1), nil)
	client.TokenFile = filepath.Join(t.TempDir(), "none")
	if _, err := client.Report(t.Context(), status.DefaultQuery()); err == nil ||
		!strings.Contains(err.Error(), "reading the token") {
		t.Error(err)
	}
}

func TestParseBase(t *testing.T) {
	for _, good := range []string{"http://127.0.0.1:9464", "https://spillway:9464", "https://host/prefix"} {
		if _, err := ParseBase(good); err != nil {
			t.Errorf("%s: %v", good, err)
		}
	}
	for _, bad := range []string{"", "127.0.0.1:9464", "localhost", "ftp://host", "http://", "http://user:password@host",
		"http://host?x=1", "://"} {
		if _, err := ParseBase(bad); err == nil {
			t.Errorf("%s is taken", bad)
		}
	}
}

// A report with nothing where something should be is shown, too.
func TestNullsInAReport(t *testing.T) {
	client := proxy(t, nil, func(w http.ResponseWriter, _ *http.Request) bool {
		fmt.Fprint(w, `{"watches":{"total":1,"items":[null]},"resources":[null],"evictions":[null]}`)
		return true
	})
	var out strings.Builder
	if err := Once(t.Context(), Options{Client: client}, &out); err != nil ||
		!strings.Contains(out.String(), "0 of 0 resources") {
		t.Errorf("%v: %s", err, &out)
	}
}
