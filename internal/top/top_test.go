package top

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

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

// options show what a client reports.
func options(client *Fetcher) Options {
	return Options{Client: client, Interval: time.Second, Order: status.DefaultQuery().WatchOrder}
}

// terminal is what one of a size shows after a frame.
func terminal(t *testing.T, frame string, width, height int) []string {
	t.Helper()
	screen := make([]string, height)
	row := 0
	for _, step := range strings.Split(frame, "\x1b[")[1:] {
		if text, erases := strings.CutPrefix(step, "K"); erases {
			runes := []rune(text)
			screen[row] = string(runes[:min(len(runes), width)])
		} else if step == "J" {
			clear(screen[row:])
		} else if n, err := fmt.Sscanf(step, "%d;1H", &row); n == 1 && err == nil {
			row = min(row, height) - 1
		} else {
			t.Fatalf("it sends %q", step)
		}
	}
	return screen
}

// A terminal of any size shows as many of the first lines as it has, each as far as it is wide.
func TestScreenFitsATerminalOfAnySize(t *testing.T) {
	o := options(proxy(t, crowd(50), nil))
	report, err := o.Client.Report(t.Context(), o.query())
	if err != nil {
		t.Fatal(err)
	}
	text := o.screen(report, errors.New("no answer"))
	lines := strings.Split(text, "\n")
	for _, width := range []int{1, 10, 40, 80, 200} {
		for _, height := range []int{1, 5, 24, 100} {
			for i, got := range terminal(t, draw(text), width, height) {
				want := ""
				if i < len(lines) {
					runes := []rune(lines[i])
					want = string(runes[:min(len(runes), width)])
				}
				if got != want {
					t.Errorf("%d×%d: line %d is %q, want %q", width, height, i, got, want)
				}
			}
		}
	}
	for _, want := range []string{"not refreshed: no answer", "Mirrored 9 of 9 resources", "resource-8", "and 3 more",
		"50 watches, by lag", "user-049"} {
		if !strings.Contains(text, want) {
			t.Errorf("lacks %q:\n%s", want, text)
		}
	}
	if strings.Contains(text, "resource-2") {
		t.Errorf("shows more resources than it has room for:\n%s", text)
	}
}

// A resource that is not synced has its cause on the screen, even if the resource itself has no
// room on it.
func TestScreenShowsCauses(t *testing.T) {
	report := crowd(1)
	o := options(proxy(t, report, nil))
	if text := o.screen(report, nil); strings.Contains(text, "Not synced") {
		t.Errorf("explains what is synced:\n%s", text)
	}
	const cause = `nodes is forbidden: User "spillway" cannot list resource "nodes"`
	report.Resources = append(report.Resources, &status.Resource{Resource: "nodes", State: "refused", StateCause: cause})
	if text := o.screen(report, nil); !strings.Contains(text, "\nnodes     refused  "+cause+"\n") {
		t.Errorf("lacks the cause:\n%s", text)
	}
	for i := range 9 {
		report.Resources = append(report.Resources,
			&status.Resource{Resource: fmt.Sprint("old-", i), StateAgeSeconds: 1, Error: "connection refused"})
	}
	if text := o.screen(report, nil); !strings.Contains(text, "and 4 more\n\nOne watch.\n") {
		t.Errorf("shows more causes than it has room for:\n%s", text)
	}
}

// The screen shows the users whose requests were rejected lately, as long as that is of use.
func TestScreenShowsRecentRejections(t *testing.T) {
	report := crowd(1)
	o := options(proxy(t, report, nil))
	rejection := &status.Rejection{At: report.At.Add(-time.Minute), User: "bot", Count: 1234, Reason: "user-rate",
		Limit: "passthrough_requests"}
	report.Rejections = []*status.Rejection{rejection}
	if text := o.screen(report, nil); !strings.Contains(text, "bot      1,234  user-rate  passthrough_requests") {
		t.Errorf("lacks the user:\n%s", text)
	}
	rejection.At = report.At.Add(-time.Hour)
	if text := o.screen(report, nil); strings.Contains(text, "Rejected") {
		t.Errorf("shows what is long over:\n%s", text)
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
	all := options(proxy(t, report, nil)).screen(report, errors.New(evil))
	if i := strings.IndexFunc(all, func(r rune) bool {
		return r < ' ' && r != '\n' || r >= 0x7f && r < 0xa0 || r == '\u202e'
	}); i >= 0 {
		t.Errorf("on the screen: %q", all[max(0, i-20):min(len(all), i+20)])
	}
}

// A proxy that does not answer is said not to, and what it said last stays, until it answers again.
// The screen is left when the user ends it, as it was.
func TestFailuresAreShownUntilTheNextReport(t *testing.T) {
	var requests atomic.Int32
	client := proxy(t, crowd(3), func(w http.ResponseWriter, _ *http.Request) bool {
		if requests.Add(1) == 2 {
			http.Error(w, "no report: the proxy is stopping", http.StatusServiceUnavailable)
			return true
		}
		return false
	})
	o := options(client)
	o.Interval = time.Millisecond
	ctx, stop := context.WithCancel(t.Context())
	frames := &frames{most: 3, stop: stop}
	if err := Run(ctx, o, frames); err != nil {
		t.Fatal(err)
	}
	all := frames.written
	if len(all) < 5 || all[0] != enterScreen || all[len(all)-1] != leaveScreen {
		t.Fatalf("%q", all)
	}
	for i, frame := range all[1:4] {
		shown := strings.Join(terminal(t, frame, 200, 40), "\n")
		if !strings.Contains(shown, "\nuser-002 ") ||
			strings.Contains(shown, "not refreshed: ") != (i == 1) ||
			strings.Contains(shown, "503: no report: the proxy is stopping") != (i == 1) {
			t.Errorf("frame %d shows\n%s", i, shown)
		}
	}
}

// frames keeps what is written, and stops what writes after so many frames.
type frames struct {
	written []string
	most    int
	stop    func()
}

func (f *frames) Write(p []byte) (int, error) {
	if f.written = append(f.written, string(p)); len(f.written) == f.most+1 {
		f.stop()
	}
	return len(p), nil
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
	f(403, "text/plain", "forbidden: this listener does not authenticate",
		"403: forbidden: this listener does not authenticate")
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
		fmt.Fprint(w, `{"watches":{"total":1,"items":[null]},"resources":[null],"evictions":[null],"rejections":[null]}`)
		return true
	})
	var out strings.Builder
	if err := Once(t.Context(), Options{Client: client}, &out); err != nil ||
		!strings.Contains(out.String(), "0 of 0 resources") {
		t.Errorf("%v: %s", err, &out)
	}
}
