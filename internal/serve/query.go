package serve

import (
	"math"
	"net/url"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"

	"spillway/internal/object"
)

// queryBool reads a boolean as upstream does: absent, "0" and "false" are false, everything else is true (W-25).
func queryBool(query url.Values, name string) bool {
	if !query.Has(name) {
		return false
	}
	text := query.Get(name)
	return text != "0" && !strings.EqualFold(text, "false")
}

// queryInt reads an integer, 0 if absent. Not ok: upstream refuses it (W-26).
func queryInt(query url.Values, name string) (n int64, ok bool) {
	if !query.Has(name) {
		return 0, true
	}
	n, err := strconv.ParseInt(query.Get(name), 10, 64)
	return n, err == nil
}

// parseRV reads a resourceVersion; "" is 0 (W-27). Upstream takes leading zeros, which then are not the string "0": rare
// enough to leave to it.
func parseRV(text string) (uint64, bool) {
	if text == "" || text == "0" {
		return 0, true
	}
	if text[0] < '1' || text[0] > '9' {
		return 0, false
	}
	rv, err := strconv.ParseUint(text, 10, 64)
	return rv, err == nil && rv < math.MaxInt64
}

// selector reads the scope and the selectors of a collection request. Not ok: upstream refuses them, in its own words
// (W-150 to W-154).
func selector(info *object.Resource, t target, query url.Values) (object.Selector, bool) {
	l, err := labels.Parse(query.Get("labelSelector"))
	if err != nil {
		return object.Selector{}, false
	}
	f, err := fields.ParseSelector(query.Get("fieldSelector"))
	if err != nil {
		return object.Selector{}, false
	}
	for _, r := range f.Requirements() {
		if !info.Selectable(r.Field) {
			return object.Selector{}, false
		}
	}
	name, _ := f.RequiresExactMatch("metadata.name")
	return object.NewSelector(t.namespace, name, l, f), true
}
