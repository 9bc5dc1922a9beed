package exchange

import (
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"
	"time"

	"k8s.io/client-go/rest"
)

func TestGatesByRelease(t *testing.T) {
	for _, c := range []struct {
		release Release
		gate    string
		want    bool
	}{
		{Release{Minor: 31}, "WatchList", false},
		{Release{Minor: 32}, "WatchList", true},
		{Release{Minor: 33}, "WatchList", false},
		{Release{Minor: 34}, "WatchList", true},
		{Release{Minor: 37, Gates: map[string]bool{"WatchList": false}}, "WatchList", false},
		{Release{Minor: 36}, "WatchListCompression", false},
	} {
		if got := c.release.Enabled(c.gate); got != c.want {
			t.Errorf("%s: %s is on: %t", c.release, c.gate, got)
		}
	}
}

// TestExplain compares answers with those of an older and of the newest API server.
func TestExplain(t *testing.T) {
	const (
		plain  = `{"kind":"ConfigMapList","metadata":{"resourceVersion":"7"},"items":[]}`
		other  = `{"kind":"ConfigMapList","metadata":{"resourceVersion":"7"},"items":[{"metadata":{"name":"a"}}]}`
		status = `{"kind":"Status","status":"Failure","message":"no"}`
	)
	answer := func(code int, body string) *Answer {
		return &Answer{Proto: "HTTP/1.1", Status: code, Header: http.Header{}, Body: []byte(body)}
	}
	for _, c := range []struct {
		name, target          string
		older, newest, answer *Answer
		want                  string // a deviation; empty: problems
	}{
		{"the newest's answer", "/x?sendInitialEvents=true&watch=1", answer(422, status), answer(200, plain),
			answer(200, plain), DevWatchList},
		{"an answer of neither", "/x?sendInitialEvents=true&watch=1", answer(422, status), answer(200, plain),
			answer(200, other), ""},
		{"the newest's, without a name", "/x", answer(200, other), answer(200, plain), answer(200, plain), ""},
		{"a refusal in other words", "/x?limit=-1", answer(400, status), answer(422, status), answer(422, status),
			DevRefusal},
		{"an object that the newest shows otherwise", "/x?watch=1",
			answer(200, `{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"7","creationTimestamp":null}}}`+"\n"),
			answer(200, `{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"7"},"new":{}}}`+"\n"),
			answer(200, `{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"7"}}}`+"\n"), DevEmptyTime},
		{"the blueprint of another list", "/x?watch=1",
			answer(200, `{"type":"BOOKMARK","object":{"metadata":{"annotations":{"k8s.io/initial-events-end":"true",`+
				`"kubernetes.io/initial-events-list-blueprint":"e30="}}}}`+"\n"),
			answer(200, `{"type":"BOOKMARK","object":{"metadata":{"annotations":{"k8s.io/initial-events-end":"true"}}}}`+"\n"),
			answer(200, `{"type":"BOOKMARK","object":{"metadata":{"annotations":{"k8s.io/initial-events-end":"true",`+
				`"kubernetes.io/initial-events-list-blueprint":"W10="}}}}`+"\n"), ""},
		{"tokens", "/x?limit=1&resourceVersion=7",
			answer(200, `{"kind":"L","metadata":{"continue":"`+EncodeToken(7, "a\x00")+`"},"items":[]}`),
			answer(200, `{"kind":"L","metadata":{"continue":"`+EncodeToken(7, "a\x00")+`"},"items":[]}`),
			answer(200, `{"kind":"L","metadata":{"continue":"`+EncodeToken(7, "/a\x00")+`"},"items":[]}`), DevToken},
		{"tokens in YAML", "/x?limit=1&resourceVersion=7",
			answer(200, "items: []\nmetadata:\n  continue: "+EncodeToken(7, "a\x00")+"\n  resourceVersion: \"7\"\n"),
			answer(200, "items: []\nmetadata:\n  continue: "+EncodeToken(7, "a\x00")+"\n  resourceVersion: \"7\"\n"),
			answer(200, "items: []\nmetadata:\n  continue: "+EncodeToken(7, "/a\x00")+"\n  resourceVersion: \"7\"\n"),
			DevToken},
		{"a version that is too large", "/x?resourceVersion=70&resourceVersionMatch=Exact", answer(504, plain),
			answer(504, status), answer(504, status), DevExactFuture},
	} {
		t.Run(c.name, func(t *testing.T) {
			newest := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(c.newest.Status)
				_, _ = w.Write(c.newest.Body)
			}))
			defer newest.Close()
			y := NewTally()
			older, ours := *c.older, *c.answer
			head, err := NewEndpoint("", newest.URL, &rest.Config{}).Do(t.Context(), Request{Target: "/"})
			if err != nil {
				t.Fatal(err)
			}
			for _, a := range []*Answer{&older, &ours} {
				a.Header, a.Length = head.Header.Clone(), len(a.Body) // only the bodies matter here
				a.Header.Set("Content-Length", strconv.Itoa(a.Length))
			}
			compared := Compare(y, Request{Target: c.target}, &older, &ours)
			s := NewSkew(Release{Minor: 33}, NewEndpoint("newest", newest.URL, &rest.Config{}))
			if err := s.Explain(t.Context(), compared); err != nil {
				t.Fatal(err)
			}
			if compared.Deviation != c.want || (c.want == "") != (len(compared.Problems) > 0) {
				t.Errorf("%q, want %q: %v", compared.Deviation, c.want, compared.Problems)
			}
		})
	}
}

// TestLateEventsAreNoDeviation holds that a short watch in which the older API server ran out of
// time is to be repeated, though the newest sent the same as the proxy.
func TestLateEventsAreNoDeviation(t *testing.T) {
	const first = `{"type":"ADDED","object":{"metadata":{"name":"a","resourceVersion":"6"}}}` + "\n"
	const second = `{"type":"ADDED","object":{"metadata":{"name":"b","resourceVersion":"7"}}}` + "\n"
	newest := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(first + second))
	}))
	defer newest.Close()
	e := NewEndpoint("newest", newest.URL, &rest.Config{})
	r := Request{Target: "/x?watch=1&timeoutSeconds=1&resourceVersion=5"}
	whole, err := e.Do(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	older := *whole
	older.Body, older.Took = []byte(first), time.Second
	older.Header = whole.Header.Clone()
	older.Length = len(first)
	older.Header.Set("Content-Length", strconv.Itoa(older.Length))
	c := Compare(NewTally(), r, &older, whole)
	if err := NewSkew(Release{Minor: 36}, e).Explain(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	if c.Deviation != "" || !c.OutOfTime() {
		t.Errorf("deviation %q, out of time: %t: %v", c.Deviation, c.OutOfTime(), c.Problems)
	}
}

func TestAnswersWithoutEmptyTimes(t *testing.T) {
	for in, want := range map[string]string{
		`{"metadata":{"creationTimestamp":null,"name":"a"}}`: `{"metadata":{"name":"a"}}`,
		`{"metadata":{"name":"a","creationTimestamp":null}}`: `{"metadata":{"name":"a"}}`,
		`{"metadata":{"creationTimestamp":null}}`:            `{"metadata":{}}`,
		"metadata:\n  creationTimestamp: null\n  name: a\n":  "metadata:\n  name: a\n",
	} {
		if got := string((&Answer{Header: http.Header{}, Body: []byte(in)}).normal().Body); got != want {
			t.Errorf("%s became %s", in, got)
		}
	}
}
