package upstream

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	"spillway/internal/fakeapiserver"
)

// scripted answers the requests of a mirror of ConfigMaps by a script, and then with silence.
type scripted struct {
	mu     sync.Mutex
	asked  []string
	script []string // a status code and a body, or a body of 200
}

// ServeHTTP gives the next answer of the script.
func (s *scripted) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	q.Del("timeoutSeconds")
	if strings.Contains(q.Get("fieldSelector"), "!=") { // a probe of capabilities
		http.NotFound(w, r)
		return
	}
	s.mu.Lock()
	n := len(s.asked)
	s.asked = append(s.asked, describe(q))
	s.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	if n >= len(s.script) {
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
		return
	}
	var code int
	body := s.script[n]
	if _, err := fmt.Sscanf(body, "%d ", &code); err == nil {
		body = body[4:]
		w.WriteHeader(code)
	}
	_, _ = w.Write([]byte(body))
}

// describe is a request in short.
func describe(q url.Values) string {
	what := "list"
	switch {
	case q.Get("sendInitialEvents") != "":
		what = "watch-list"
	case q.Get("watch") != "":
		what = "watch"
	}
	for _, name := range []string{"resourceVersion", "limit", "continue"} {
		if q.Has(name) {
			what += " " + name + "=" + q.Get(name)
		}
	}
	return what
}

const (
	refusedWatchList = `422 {"kind":"Status","status":"Failure","reason":"Invalid","code":422}`
	expired          = `410 {"kind":"Status","status":"Failure","reason":"Expired","code":410}`
	tooLarge         = `504 {"kind":"Status","status":"Failure","reason":"Timeout","code":504,"details":{"causes":` +
		`[{"reason":"ResourceVersionTooLarge"}]}}`
)

func listPageOf(rv int, next string, names ...string) string {
	items := make([]string, 0, len(names))
	for i, name := range names {
		items = append(items, configMap(name, i+1, ""))
	}
	return fmt.Sprintf(`{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"%d","continue":%q},`+
		`"items":[%s]}`, rv, next, strings.Join(items, ","))
}

func TestRequestsOfTheLoop(t *testing.T) {
	for _, c := range []struct {
		name   string
		script []string
		want   []string // requests
		sink   []string // what the Sink receives at first
	}{
		{"pages", []string{refusedWatchList, listPageOf(9, "token", "a"), listPageOf(9, "", "b")},
			[]string{"watch-list", "list resourceVersion=0 limit=500", "list limit=500 continue=token",
				"watch resourceVersion=9"},
			[]string{"replace 9 [a/a a/b]"}},
		{"a page that is gone", []string{refusedWatchList, listPageOf(9, "token", "a"), expired,
			listPageOf(12, "", "a", "c")},
			[]string{"watch-list", "list resourceVersion=0 limit=500", "list limit=500 continue=token", "list resourceVersion=0",
				"watch resourceVersion=12"},
			[]string{"replace 12 [a/a a/c]"}},
		{"a version that is gone", []string{frame("ADDED", configMap("a", 5, "")) + frame("BOOKMARK", end), expired,
			expired, frame("BOOKMARK", strings.Replace(end, `"9"`, `"20"`, 1))},
			[]string{"watch-list", "watch resourceVersion=9", "watch-list resourceVersion=9", "watch-list",
				"watch resourceVersion=20"},
			[]string{"replace 9 [a/a]", "replace 20 []"}},
		{"versions that are never there", []string{tooLarge, tooLarge, listPageOf(9, "", "a")},
			[]string{"watch-list", "watch-list", "list limit=500", "watch resourceVersion=9"},
			[]string{"replace 9 [a/a]"}},
		{"a watch that is to come later", []string{frame("BOOKMARK", end),
			frame("ERROR", `{"kind":"Status","status":"Failure","reason":"TooManyRequests","code":429}`)},
			[]string{"watch-list", "watch resourceVersion=9", "watch resourceVersion=9"},
			[]string{"replace 9 []"}},
		{"a watch that cannot be understood", []string{frame("BOOKMARK", end), frame("ERROR", `{"kind":"Pod"}`),
			frame("BOOKMARK", end)},
			[]string{"watch-list", "watch resourceVersion=9", "watch-list resourceVersion=9", "watch resourceVersion=9"},
			[]string{"replace 9 []", "replace 9 []"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, client := apiserver(t, fakeapiserver.Options{})
			answers := &scripted{script: c.script}
			s.Handle(configMaps.Path(), answers)
			sink := newRecorder()
			mirror(t, client, configMaps, sink)
			eventually(t, "the last request", func() bool {
				answers.mu.Lock()
				defer answers.mu.Unlock()
				return len(answers.asked) >= len(c.want)
			})
			answers.mu.Lock()
			asked := slices.Clone(answers.asked)
			answers.mu.Unlock()
			if !slices.Equal(asked, c.want) {
				t.Errorf("the loop requested\n%s\nwant\n%s", strings.Join(asked, "\n"), strings.Join(c.want, "\n"))
			}
			sink.mu.Lock()
			defer sink.mu.Unlock()
			states := slices.DeleteFunc(slices.Clone(sink.log), func(entry string) bool {
				return !strings.HasPrefix(entry, "replace")
			})
			if !slices.Equal(states, c.sink) {
				t.Errorf("the Sink received %q, want %q", states, c.sink)
			}
		})
	}
}
