package simulation

import (
	"math/rand/v2"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"

	"spillway/internal/object"
)

// filter is a selector as the oracle understands it: "" is all.
type filter struct{ namespace, name, app, node string }

func randomFilter(r *rand.Rand) filter {
	switch r.IntN(8) {
	case 0:
		return filter{namespace: pick(r, "a", "b", "nowhere")}
	case 1:
		return filter{namespace: "a", name: "p1"}
	case 2:
		return filter{app: "web"}
	case 3:
		return filter{node: pick(r, "n1", "n2")}
	case 4:
		return filter{namespace: "b", app: "db"}
	default:
		return filter{}
	}
}

func (f filter) matches(v *version) bool {
	return v != nil && (f.namespace == "" || f.namespace == v.namespace) && (f.name == "" || f.name == v.name) &&
		(f.app == "" || f.app == v.app) && (f.node == "" || f.node == v.node)
}

// seen is W-103.
func (f filter) seen(e *entry) (kind string, shown *version, ok bool) {
	switch now, before := f.matches(e.new), f.matches(e.old); {
	case now && before:
		return "MODIFIED", e.new, true
	case now:
		return "ADDED", e.new, true
	case before:
		return "DELETED", e.old, true
	}
	return "", nil, false
}

// selector is the filter as the hub understands it, and whatever labels are required beyond it.
func (f filter) selector(beyond ...labels.Requirement) object.Selector {
	l := labels.Everything()
	var d fields.Selector
	if f.app != "" {
		l = labels.SelectorFromSet(labels.Set{"app": f.app})
	}
	l = l.Add(beyond...)
	if f.node != "" {
		d = fields.OneTermEqualSelector("spec.nodeName", f.node)
	}
	return object.NewSelector(f.namespace, f.name, l, d)
}

// format is an encoding.
type format struct{ chunked, bookmarks bool }

func (f format) encoding() object.Encoding {
	return object.Encoding{Chunked: f.chunked, Bookmarks: f.bookmarks}
}
