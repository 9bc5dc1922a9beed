package conformance

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"spillway/test/framework/exchange"
	"spillway/test/framework/process"
)

// testBookmarkPeriod waits for bookmarks that come each minute (W-111).
func (s *suite) testBookmarkPeriod(t *testing.T) {
	r := request{Target: "/api/v1/secrets?watch=1&timeoutSeconds=130&allowWatchBookmarks=true&resourceVersion=" +
		s.now(t, "/api/v1/secrets")}
	_, err := s.client.CoreV1().Secrets("c1").Patch(t.Context(), "basic", mergeType,
		[]byte(`{"metadata":{"annotations":{"period":"yes"}}}`), metav1.PatchOptions{})
	must(t, err)
	direct, proxied := s.both(t, s.plain, r, 2*process.Patience)
	if direct == nil {
		return
	}
	c := exchange.Compare(s.tally, r, direct, proxied)
	for _, problem := range c.Problems {
		t.Error(problem)
	}
	for who, a := range map[string]*answer{"direct": direct, "proxied": proxied} {
		n := 0
		for _, e := range exchange.SplitEvents(a.Body) {
			if e.Type == "BOOKMARK" {
				n++
			}
		}
		if n < 2 {
			t.Errorf("%s: %d bookmarks in 130 s", who, n)
		}
	}
	s.show(t, "W-111 W-236", c.By())
}
