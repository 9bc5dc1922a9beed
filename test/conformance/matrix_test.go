package conformance

import (
	"net/http"
	"strings"
	"testing"
)

// dimension is a query parameter and the values it is tried with; "-" leaves it out.
type dimension struct {
	name   string
	values []string
}

// combine makes every query of some dimensions.
func combine(dimensions []dimension) []string {
	queries := []string{""}
	for _, d := range dimensions {
		var longer []string
		for _, q := range queries {
			for _, v := range d.values {
				if v == "-" {
					longer = append(longer, q)
				} else {
					longer = append(longer, q+"&"+d.name+"="+v)
				}
			}
		}
		queries = longer
	}
	return queries
}

var (
	versionValues = dimension{"resourceVersion", []string{"-", "0", "1", "${mid}", "${last}", "${future}", "abc"}}
	matchValues   = dimension{"resourceVersionMatch", []string{"-", "Exact", "NotOlderThan", "Foo"}}
	limitValues   = dimension{"limit", []string{"-", "1", "100"}}
	tokenValues   = dimension{"continue", []string{"-", "${token-mid}", "${token-any}", "${token-old}", "nonsense"}}
	initialValues = dimension{"sendInitialEvents", []string{"-", "true", "false"}}
	markValues    = dimension{"allowWatchBookmarks", []string{"-", "true"}}
)

// testMatrix asks for every combination of what W-31, W-32, W-63 and W-100 distinguish. What the answer is, is up to the
// apiserver; that it is the same, is tested.
func (s *suite) testMatrix(t *testing.T) {
	t.Run("list", func(t *testing.T) {
		for _, q := range combine([]dimension{versionValues, matchValues, limitValues, tokenValues, {"sendInitialEvents", []string{"-", "true"}}}) {
			s.trial(t, c1, q, "W-31 W-63 W-64 W-67 W-83")
		}
	})
	t.Run("list all", func(t *testing.T) {
		for _, q := range combine([]dimension{versionValues, matchValues, limitValues}) {
			s.trial(t, allMaps, q, "W-61 W-63")
		}
	})
	t.Run("custom", func(t *testing.T) {
		for _, q := range combine([]dimension{versionValues, matchValues, limitValues}) {
			s.trial(t, someWidgets, q, "W-60 W-63")
		}
	})
	t.Run("watch", func(t *testing.T) {
		short := []dimension{versionValues, matchValues, {"limit", []string{"-", "1"}}, {"continue", []string{"-", "nonsense"}}, initialValues, markValues}
		for _, q := range combine(short) {
			s.trial(t, c1, "&watch=1&timeoutSeconds=1"+q, "W-32 W-100 W-101 W-106 W-107")
		}
	})
	t.Run("watch custom", func(t *testing.T) {
		for _, q := range combine([]dimension{versionValues, matchValues, initialValues, markValues}) {
			s.trial(t, someWidgets, "&watch=1&timeoutSeconds=1"+q, "W-32 W-100")
		}
	})
}

// trial is a scenario of which nothing is known but that both answers must be equal.
func (s *suite) trial(t *testing.T, path, query, rules string) {
	t.Helper()
	query = strings.TrimPrefix(query, "&")
	t.Run(query, func(t *testing.T) {
		t.Parallel()
		c := get(query, rules, path+"?"+query, either, anyStatus)
		c.Method = http.MethodGet
		s.run(t, s.plain, c)
	})
}
