package conformance

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strconv"
	"testing"

	"spillway/test/framework/exchange"
	"spillway/test/framework/process"
)

// page is what a page of a list says.
type page struct {
	Metadata struct {
		ResourceVersion    string
		Continue           string
		RemainingItemCount *int64
	}
	Items []struct {
		Metadata struct{ Namespace, Name, ResourceVersion string }
	}
}

// keys are namespace/name@resourceVersion.
func (p *page) keys() []string {
	var keys []string
	for _, i := range p.Items {
		keys = append(keys, i.Metadata.Namespace+"/"+i.Metadata.Name+"@"+i.Metadata.ResourceVersion)
	}
	return keys
}

func (s *suite) page(ctx context.Context, t *testing.T, e *endpoint, target string) *page {
	t.Helper()
	a, err := e.Do(ctx, request{Target: target})
	must(t, err)
	if a.Status != http.StatusOK {
		t.Fatalf("%s: %s: %d %s", e.Name, target, a.Status, exchange.Clip(a.Body))
	}
	if e != s.direct && a.Header.Get(exchange.FlowControl) != "" {
		t.Errorf("%s: %s: not answered from memory", e.Name, target)
	}
	p := &page{}
	must(t, decodeJSON(a.Body, p))
	return p
}

// testPaging walks lists whose pages come from different sides in turn: a token is good everywhere
// (W-80, W-81).
func (s *suite) testPaging(t *testing.T) {
	for _, walk := range []struct{ path, options string }{
		{c1, ""}, {allMaps, ""}, {allMaps, "&labelSelector=app%3Dx"}, {someWidgets, ""}, {"/api/v1/pods", ""},
		{"/api/v1/nodes", ""},
		{"/api/v1/namespaces/o/configmaps", ""}, {heavy, ""}, {allMaps, "&fieldSelector=metadata.name%3Dz"},
	} {
		for _, limit := range []int{1, 2, 3, 7} {
			for first := range 3 {
				t.Run(fmt.Sprintf("%s%s by %d from %d", walk.path, walk.options, limit, first), func(t *testing.T) {
					t.Parallel()
					s.walk(t, walk.path, walk.options, limit, first)
				})
			}
		}
	}
	t.Run("expired", s.testExpiredToken)
	t.Run("namespace by field", s.testNamespaceField)
}

// walk goes through the pages, each from another side, and compares them with the whole.
func (s *suite) walk(t *testing.T, path, options string, limit, first int) {
	ctx, cancel := context.WithTimeout(t.Context(), process.Patience)
	defer cancel()
	sides := s.sides()
	version := s.known(t, path)
	whole := s.page(ctx, t, s.direct, path+"?resourceVersion="+version+"&resourceVersionMatch=Exact"+options).keys()
	bound := "&limit=" + strconv.Itoa(limit) + options
	target := path + "?resourceVersion=" + version + "&resourceVersionMatch=Exact" + bound
	var got []string
	for i := first; ; i++ {
		p := s.page(ctx, t, sides[i%len(sides)], target)
		if p.Metadata.ResourceVersion != version {
			t.Errorf("page %d is at %s, the list at %s", i-first, p.Metadata.ResourceVersion, version)
		}
		if got = append(got, p.keys()...); options == "" {
			checkRemaining(t, p, len(whole)-len(got))
		}
		if p.Metadata.Continue == "" || len(got) > len(whole) {
			break
		}
		target = path + "?continue=" + p.Metadata.Continue + bound
	}
	if !slices.Equal(got, whole) {
		t.Errorf("pages hold %q, the list %q", got, whole)
	}
	s.show(t, "W-61 W-64 W-69 W-70 W-80 W-81", memory)
}

// known is a resourceVersion of a collection that every side has reached, and so can show exactly.
func (s *suite) known(t *testing.T, path string) string {
	t.Helper()
	least := uint64(math.MaxUint64)
	for _, e := range s.sides() {
		a, err := e.Do(t.Context(), request{Target: path + "?resourceVersion=0"})
		must(t, err)
		least = min(least, listVersion(a.Body))
	}
	return strconv.FormatUint(least, 10)
}

// checkRemaining compares how many items remain (W-70).
func checkRemaining(t *testing.T, p *page, want int) {
	t.Helper()
	switch {
	case p.Metadata.Continue == "" && p.Metadata.RemainingItemCount != nil:
		t.Error("items remain after the last page")
	case p.Metadata.Continue != "" &&
		(p.Metadata.RemainingItemCount == nil || *p.Metadata.RemainingItemCount != int64(want)):
		t.Errorf("remainingItemCount %v, want %d", p.Metadata.RemainingItemCount, want)
	}
}

// testExpiredToken follows the token that a 410 offers, each on the other side (W-83).
func (s *suite) testExpiredToken(t *testing.T) {
	for i, e := range s.sides() {
		other := s.sides()[(i+1)%3]
		a, err := e.Do(t.Context(), request{Target: s.fill(c1 + "?limit=1&continue=${token-old}")})
		must(t, err)
		var status page
		must(t, decodeJSON(a.Body, &status))
		if a.Status != http.StatusGone || status.Metadata.Continue == "" {
			t.Fatalf("%s: %d %s", e.Name, a.Status, a.Body)
		}
		a, err = other.Do(t.Context(), request{Target: c1 + "?limit=1&continue=" + status.Metadata.Continue})
		must(t, err)
		var next page
		must(t, decodeJSON(a.Body, &next))
		if a.Status != http.StatusOK || len(next.Items) != 1 || next.Items[0].Metadata.Name != "b" {
			t.Errorf("%s: %d %s", other.Name, a.Status, a.Body)
		}
	}
	s.show(t, "W-83 W-84 W-177", upstream)
}

// testNamespaceField pages through one namespace by a field selector: the API server, whose token
// means another scope on the second page, repeats an object, and so it is passed through (W-71).
func (s *suite) testNamespaceField(t *testing.T) {
	version := s.known(t, allMaps)
	const only = "&limit=1&fieldSelector=metadata.namespace%3Dc2"
	var got [2][]string
	for i, e := range []*endpoint{s.direct, s.plain} {
		target := allMaps + "?resourceVersion=" + version + "&resourceVersionMatch=Exact" + only
		for target != "" && len(got[i]) < 10 {
			a, err := e.Do(t.Context(), request{Target: target})
			must(t, err)
			var p page
			must(t, decodeJSON(a.Body, &p))
			got[i] = append(got[i], p.keys()...)
			if target = ""; p.Metadata.Continue != "" {
				target = allMaps + "?continue=" + p.Metadata.Continue + only
			}
		}
	}
	if !slices.Equal(got[0], got[1]) || len(got[0]) < 3 {
		t.Errorf("direct, the pages hold %q, proxied %q", got[0], got[1])
	}
	s.show(t, "W-71", upstream)
}
