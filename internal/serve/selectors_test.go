package serve

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"spillway/internal/fakeapiserver"
	"spillway/internal/fakeapiserver/rawclient"
	"spillway/internal/flowcontrol"
	"spillway/internal/memory"
	"spillway/internal/object"
)

// unlike is a label selector of so many terms that matches everything, and is another one for each
// number.
func unlike(terms, number int) string {
	all := make([]string, terms)
	for i := range all {
		all[i] = fmt.Sprintf("x%d-%d!=v", number, i)
	}
	return url.QueryEscape(strings.Join(all, ","))
}

// selecting is a rig with limits on selectors, in which alice and bob may see everything.
func selecting(t *testing.T, goroutines bool, limits flowcontrol.Limits) *rig {
	r := rigOf(t, fakeapiserver.New(fakeapiserver.Options{}), rigOptions{
		mirrors: []*object.Resource{configMaps}, access: true, clients: limits, goroutines: goroutines, backfill: 1,
	})
	r.people()
	r.reviews.Allow(func(authorizationv1.SubjectAccessReviewSpec) bool { return true })
	return r
}

// as begins a watch of a user's.
func (r *rig) as(token, target string) (*rawclient.Watcher, int) {
	r.t.Helper()
	w := rawclient.Watch(deadline(r.t), r.url, target, bearing(token))
	r.t.Cleanup(w.Close)
	code, _, err := w.Head(deadline(r.t))
	if err != nil {
		r.t.Fatal(err)
	}
	return w, code
}

// One user's selectors are bounded in sum, equal ones count once, and others have their own. What
// ends is given back.
func TestSelectorsAreBoundedInSum(t *testing.T) {
	eachWay(t, func(t *testing.T, goroutines bool) {
		t.Parallel()
		r := selecting(t, goroutines, flowcontrol.Limits{SelectorTerms: 2000, SelectorTermsPerUser: 1000})
		watch := func(terms, number int) string {
			return inN + "?watch=1&resourceVersion=1&labelSelector=" + unlike(terms, number)
		}
		var open []*rawclient.Watcher
		for i, c := range []struct {
			token         string
			terms, number int
			code          int
		}{
			{"alice", 600, 1, 200}, {"alice", 600, 1, 200}, {"alice", 401, 2, 429}, {"alice", 400, 2, 200},
			{"alice", 17, 3, 429},
			{"alice", flowcontrol.FreeSelectorWeight, 3, 200}, {"bob", 600, 1, 200},
		} {
			w, code := r.as(c.token, watch(c.terms, c.number))
			if code != c.code {
				t.Errorf("%d: %d, want %d", i, code, c.code)
			}
			open = append(open, w)
		}
		for _, c := range []struct {
			name   string
			labels []string
			want   float64
		}{
			{"spillway_flowcontrol_in_use", []string{"limit=selector_terms"}, 1600},
			{"spillway_flowcontrol_limit", []string{"limit=selector_terms"}, 2000},
			{"spillway_large_selectors", nil, 3},
		} {
			if n := r.metric(c.name, c.labels...); n != c.want {
				t.Errorf("%s%v is %v, want %v", c.name, c.labels, n, c.want)
			}
		}
		if n := r.metric("spillway_flowcontrol_rejected_requests_total", "limit=selector_terms",
			"reason=user-limit"); n != 2 {
			t.Errorf("counted %v refusals", n)
		}
		r.up.Create(fakeapiserver.ConfigMaps, "n", "a")
		for i, w := range open {
			if i == 2 || i == 4 {
				continue
			}
			if e, err := w.Next(deadline(t)); err != nil || e.Type != "ADDED" {
				t.Errorf("%d: %v, %v", i, e, err)
			}
		}
		for _, w := range open {
			w.Close()
		}
		returned(t, r.limiter)
		if n := r.metric("spillway_selector_bytes"); n != 0 {
			t.Errorf("%v bytes are left", n)
		}
		if _, code := r.as("alice", watch(1000, 4)); code != http.StatusOK {
			t.Errorf("later: %d", code)
		}
	})
}

// A refusal says why, in a Status. A single selector that is larger than a user's share is served
// alone.
func TestRefusalNamesSelectors(t *testing.T) {
	t.Parallel()
	r := selecting(t, false, flowcontrol.Limits{SelectorTerms: 800, SelectorTermsPerUser: 400})
	target := inN + "?watch=1&resourceVersion=1&labelSelector="
	if _, code := r.as("alice", target+unlike(600, 1)); code != http.StatusOK {
		t.Fatalf("alone: %d", code)
	}
	request, err := http.NewRequestWithContext(deadline(t), http.MethodGet, r.url+target+unlike(300, 2), nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer alice")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	var status metav1.Status
	if err := json.NewDecoder(response.Body).Decode(&status); err != nil {
		t.Fatal(err)
	}
	if status.Code != 429 || status.Reason != metav1.StatusReasonTooManyRequests ||
		status.Details.RetryAfterSeconds < 1 || response.Header.Get("Retry-After") == "" ||
		!strings.Contains(status.Message, "more than 400 terms") || !strings.Contains(status.Message, "counts 300") ||
		!strings.Contains(status.Message, "--max-selector-terms-per-user") {
		t.Errorf("%v, %+v", response.Header, status)
	}
}

// While memory is short, watches with heavy selectors end cleanly and others go on; those that
// ended go on from where they were afterwards.
func TestHeavySelectorsAreShed(t *testing.T) {
	eachWay(t, func(t *testing.T, goroutines bool) {
		t.Parallel()
		r := selecting(t, goroutines, flowcontrol.Limits{SelectorTerms: 16_000, SelectorTermsPerUser: 8000})
		target := inN + "?watch=1&resourceVersion=1&labelSelector="
		heavy, _ := r.as("alice", target+unlike(300, 1))
		light, _ := r.as("alice", target+unlike(200, 2))
		r.up.Create(fakeapiserver.ConfigMaps, "n", "a")
		for _, w := range []*rawclient.Watcher{heavy, light} {
			if _, err := w.Next(deadline(t)); err != nil {
				t.Fatal(err)
			}
		}
		r.server.Degrade(memory.RefuseAndEvict)
		if _, err := heavy.Next(deadline(t)); err == nil {
			t.Error("a heavy watch goes on")
		}
		eventually(t, "the end to be counted", func() bool {
			return r.metric("spillway_watch_terminations_total", "reason=memory_pressure") == 1 &&
				r.metric("spillway_large_selectors") == 0
		})
		if _, code := r.as("alice", target+unlike(900, 3)); code != http.StatusTooManyRequests {
			t.Errorf("another one meanwhile: %d", code)
		}
		r.server.Degrade(memory.ShortenHistory)
		if _, code := r.as("alice", target+unlike(900, 3)); code != http.StatusOK {
			t.Errorf("another one later: %d", code)
		}
		r.up.Create(fakeapiserver.ConfigMaps, "n", "b")
		if e, err := light.Next(deadline(t)); err != nil || e.Type != "ADDED" {
			t.Errorf("a light watch: %v, %v", e, err)
		}
	})
}

// The hub evaluates no heavy selector for an event; that happens aside, once for equal selectors.
func TestHeavySelectorsAreEvaluatedInLanes(t *testing.T) {
	t.Parallel()
	r := selecting(t, false, flowcontrol.Limits{})
	target := inN + "?watch=1&resourceVersion=1&labelSelector="
	var open []*rawclient.Watcher
	for i := range 12 {
		w, code := r.as("alice", target+unlike(600, i/4))
		if code != http.StatusOK {
			t.Fatal(code)
		}
		open = append(open, w)
	}
	plain, _ := r.as("bob", inN+"?watch=1&resourceVersion=1")
	open = append(open, plain)
	r.live(len(open)) // before that a watch has no feed, and it reads earlier events from the log
	const events = 20
	for i := range events {
		r.up.Create(fakeapiserver.ConfigMaps, "n", fmt.Sprint(i))
	}
	for _, w := range open {
		for range events {
			if _, err := w.Next(deadline(t)); err != nil {
				t.Fatal(err)
			}
		}
	}
	stats := r.catalog[fakeapiserver.ConfigMaps].Hub.Stats()
	eventually(t, "the lane to dispatch", func() bool { return stats.LaneSelectorEvaluations.Load() > 0 })
	if asked, aside := stats.SelectorEvaluations.Load(), stats.LaneSelectorEvaluations.Load(); asked > events ||
		aside > 3*events {
		t.Errorf("asked %d selectors, and %d aside, about %d events: want at most %d and %d",
			asked, aside, events, events, 3*events)
	}
}
