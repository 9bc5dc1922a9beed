package exchange

import (
	"net/http"
	"strings"
	"testing"
	"time"
)

// A watch that did not find the time may be repeated. One that had it, or says something else,
// differs.
func TestOutOfTime(t *testing.T) {
	const (
		one   = `{"type":"ADDED","object":{"kind":"ConfigMap","metadata":{"name":"a","resourceVersion":"5"}}}` + "\n"
		two   = `{"type":"ADDED","object":{"kind":"ConfigMap","metadata":{"name":"b","resourceVersion":"6"}}}` + "\n"
		other = `{"type":"ADDED","object":{"kind":"ConfigMap","metadata":{"name":"b","resourceVersion":"7"}}}` + "\n"
		mark  = `{"type":"BOOKMARK","object":{"kind":"ConfigMap","metadata":{"resourceVersion":"6",` +
			`"annotations":{"k8s.io/initial-events-end":"true"}}}}` + "\n"
		short = "?watch=1&timeoutSeconds=1"
		long  = "?watch=1&timeoutSeconds=7"
	)
	for _, c := range []struct {
		name, query     string
		direct, proxied string
		took            time.Duration
		want            bool
	}{
		{"the API server told less", short, one, one + two, time.Second, true},
		{"the API server told nothing", short, "", one, time.Second, true},
		{"the proxy told less", short, one + two, one, time.Second, true},
		{"the proxy told nothing", short, one, "", time.Second, true},
		{"the proxy told less before the time was up", short, one + two, one, 900 * time.Millisecond, false},
		{"the proxy sent nothing, in a longer watch", long, one + two, "", 3 * time.Second, false},
		{"the proxy sent no end of its state", long, one + mark, one, 3 * time.Second, false},
		{"the API server sent no end of its state", long, one, one + mark, 3 * time.Second, false},
		{"equal", short, one, one, time.Second, false},
		{"something else", short, one + two, one + other, time.Second, false},
		{"something else, and more of it", short, one, other + two, time.Second, false},
		{"before the time was up", short, one, one + two, 900 * time.Millisecond, false},
		{"a watch with time enough", "?watch=1&timeoutSeconds=3", one, one + two, 3 * time.Second, false},
		{"a watch without an end", "?watch=1", one, one + two, time.Minute, false},
		{"the proxy broke a promise", short, one, one + strings.Replace(one, "ADDED", "BOOKMARK", 1) + one, time.Second,
			false},
	} {
		t.Run(c.name, func(t *testing.T) {
			direct := &Answer{Status: http.StatusOK, Header: http.Header{}, Body: []byte(c.direct), Took: c.took}
			proxied := &Answer{Status: http.StatusOK, Header: http.Header{}, Body: []byte(c.proxied), Took: c.took}
			result := Compare(NewTally(), Request{Target: "/api/v1/configmaps" + c.query}, direct, proxied)
			if got := result.OutOfTime(); got != c.want {
				t.Errorf("%t, problems %q", got, result.Problems)
			}
			if equal := len(result.Problems) == 0; equal != (c.direct == c.proxied) {
				t.Errorf("equal: %t, problems %q", equal, result.Problems)
			}
		})
	}
}

// The API server may leave out the ERROR event at the end of a short watch from the future; the
// proxy may not (W-106).
func TestErrorOfTheFutureIsOptionalInShortWatches(t *testing.T) {
	const (
		future = `{"type":"ERROR","object":{"kind":"Status","details":{"causes":[{"reason":"ResourceVersionTooLarge"}]},` +
			`"code":504}}` + "\n"
		gone = `{"type":"ERROR","object":{"kind":"Status","reason":"Expired","code":410}}` + "\n"
	)
	for _, c := range []struct {
		timeout, direct, proxied string
		equal                    bool
	}{
		{"1", "", future, true},
		{"3", "", future, true},
		{"4", "", future, false},
		{"0", "", future, false},
		{"1", future, "", false},
		{"1", "", gone, false},
		{"1", "", future + future, false},
	} {
		answer := func(body string) *Answer {
			return &Answer{Status: http.StatusOK, Header: http.Header{}, Body: []byte(body), Took: 3 * time.Second}
		}
		r := Request{Target: "/api/v1/configmaps?watch=1&timeoutSeconds=" + c.timeout}
		result := Compare(NewTally(), r, answer(c.direct), answer(c.proxied))
		if equal := len(result.Problems) == 0; equal != c.equal {
			t.Errorf("timeoutSeconds=%s, direct %q, proxied %q: %q", c.timeout, c.direct, c.proxied, result.Problems)
		}
	}
}
