package serve

import (
	"fmt"
	"net/http"
	"testing"

	"golang.org/x/time/rate"

	"spillway/internal/fakeapiserver"
	"spillway/internal/freshness"
	"spillway/internal/object"
	"spillway/internal/source/sourcetest"
)

// While no freshness can be proven, watches of the most recent state pass through as fast as
// upstream can bear, and the excess receives a 429 with a randomized Retry-After; watches of any
// state are answered from memory.
func TestDoubtfulWatches(t *testing.T) { eachProtocol(t, testDoubtfulWatches) }

func testDoubtfulWatches(t *testing.T, http2 bool) {
	t.Parallel()
	r := newRig(t, rigOptions{mirrors: []*object.Resource{configMaps},
		prober: func(freshness.Upstream) freshness.Upstream { return sourcetest.Unreachable{} }})
	r.up.Create(fakeapiserver.ConfigMaps, "n", "a")
	r.mirrored(configMaps)
	const passing = 3
	r.server.unprovenWatches = rate.NewLimiter(0, passing)
	source := r.catalog[configMaps.GVR]
	eventually(t, "doubt", func() bool {
		_, _ = source.Fresh.Prove(t.Context()) // no proof succeeds
		return source.Fresh.IsFailing()
	})
	client, url := http.DefaultClient, r.url
	if http2 {
		client, url = overHTTP2(t, 1<<20), r.tlsURL
	}
	const list = "?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan" +
		"&allowWatchBookmarks=true&timeoutSeconds="
	passed := func() int { return len(r.up.RequestsFor(fakeapiserver.ConfigMaps, "watch")) }
	before := passed()
	for i := range 2 * passing {
		response, err := client.Get(url + mapsPath + list + fmt.Sprint(1000+i))
		if err != nil {
			t.Fatal(err)
		}
		after := response.Header.Get("Retry-After")
		_ = response.Body.Close()
		if i < passing && response.StatusCode != http.StatusOK || i >= passing &&
			(response.StatusCode != http.StatusTooManyRequests || !spread(after)) {
			t.Errorf("number %d: %s, Retry-After %q", i, response.Status, after)
		}
	}
	if n := passed() - before; n != passing {
		t.Errorf("%d passed through, want %d", n, passing)
	}
	if n := r.metric("spillway_freshness_rejected_requests_total", "resource=configmaps"); n != passing {
		t.Errorf("%v are counted", n)
	}
	response, body := get(t, client, "GET", url+mapsPath+"?watch=1&resourceVersion=0&timeoutSeconds=1")
	if response.StatusCode != http.StatusOK {
		t.Errorf("any state: %s %s", response.Status, body)
	}
	if n := passed() - before; n != passing {
		t.Errorf("any state passed through")
	}
}
