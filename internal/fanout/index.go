package fanout

import (
	"slices"

	"spillway/internal/object"
)

// index finds the feeds that an event may concern, at the cost of those that it finds. It belongs
// to the dispatcher.
//
// A feed stands under one term of its selector, once for each value that the term allows, and
// within the namespace if the selector names one. An event is looked up with both versions of its
// object, since a feed must also learn of what leaves it. What is found is still evaluated
// (Selector.EventFor): the index leaves out only feeds that the event cannot concern. A feed whose
// selector has no usable term, such as one that sees everything, is found by every event.
//
// Asking every feed, which this replaces, makes an event cost what there are watchers: with 5000
// kubelets, 5000 questions for the one or two that have the pod.
type index struct {
	all       []*Feed
	unindexed []*Feed      // without a usable term
	fields    []*dimension // as many as selectable fields are used: few
	labels    map[string]*dimension

	lookup uint64  // the number of the look-up under way
	found  []*Feed // by it
}

// dimension is the feeds that stand under the same field or label.
type dimension struct {
	label        bool
	name         string
	feeds        map[scopedValue][]*Feed
	scoped, free int // spots that name a namespace, and those that do not, counted by feed
}

// scopedValue is a value, in a namespace or in all.
type scopedValue struct{ namespace, value string }

// indexEntry is where the index has a feed.
type indexEntry struct {
	number    int        // in index.all
	dimension *dimension // nil: in index.unindexed
	namespace string
	values    []string
	found     uint64 // by which look-up
}

// maxSelectedKeys is how many values a term may allow to be usable. Each is an entry in memory;
// asking is cheaper than a thousand of them.
const maxSelectedKeys = 16

// selectiveFields are the fields whose values few objects share. Labels come next, since their
// values are for telling objects apart by, then all other fields, of which many have two or three
// values, and last the namespace alone.
var selectiveFields = map[string]bool{
	"spec.nodeName": true, "spec.host": true, "spec.podName": true, "spec.pool.name": true,
	"spec.clusterIP": true, "status.podIP": true, "status.nominatedNodeName": true,
}

// add lists a feed.
func (x *index) add(f *Feed) {
	f.entry.number = len(x.all)
	x.all = append(x.all, f)
	if !x.chooseDimension(f) {
		x.unindexed = append(x.unindexed, f)
		return
	}
	l := &f.entry
	l.dimension.count(l.namespace, len(l.values))
	for _, v := range l.values {
		at := scopedValue{l.namespace, v}
		l.dimension.feeds[at] = append(l.dimension.feeds[at], f)
	}
}

// remove forgets a feed that was added.
func (x *index) remove(f *Feed) {
	l := f.entry
	last := x.all[len(x.all)-1]
	x.all[l.number], last.entry.number = last, l.number
	x.all[len(x.all)-1] = nil
	x.all = x.all[:len(x.all)-1]
	x.found = nil // lest it holds the feed
	f.entry = indexEntry{}
	if l.dimension == nil {
		x.unindexed = removeFeed(x.unindexed, f)
		return
	}
	l.dimension.count(l.namespace, -len(l.values))
	for _, v := range l.values {
		at := scopedValue{l.namespace, v}
		if left := removeFeed(l.dimension.feeds[at], f); len(left) > 0 {
			l.dimension.feeds[at] = left
		} else {
			delete(l.dimension.feeds, at)
		}
	}
	if len(l.dimension.feeds) == 0 {
		x.dropDimension(l.dimension)
	}
}

// chooseDimension decides under which term a feed stands: the one that few objects satisfy, by its
// kind, and among equals the one that fewest feeds share. So a label that all feeds demand alike
// gets one of them. It returns false if no term is usable.
func (x *index) chooseDimension(f *Feed) bool {
	terms := f.selector.Terms()
	namespace := ""
	for _, t := range terms {
		if !t.Label && t.Name == object.FieldNamespace && namespace == "" {
			namespace = t.Values[0]
		}
	}
	rank, fewest := 0, 0
	l := &f.entry
	for _, t := range terms {
		if len(t.Values) == 0 || len(t.Values) > maxSelectedKeys {
			continue
		}
		within := namespace
		if !t.Label && t.Name == object.FieldNamespace {
			within = "" // it would say the same twice
		}
		d := x.dimension(t)
		r, c := rankOf(t), d.feedsAt(within, t.Values)
		if l.dimension == nil || r < rank || r == rank && c < fewest {
			rank, fewest = r, c
			l.dimension, l.namespace, l.values = d, within, t.Values
		}
	}
	if l.dimension != nil && len(l.dimension.feeds) == 0 {
		x.openDimension(l.dimension)
	}
	return l.dimension != nil
}

// rankOf is the lower, the fewer objects satisfy a term of its kind.
func rankOf(t object.Term) int {
	switch {
	case t.Label:
		return 2
	case t.Name == object.FieldName:
		return 0
	case t.Name == object.FieldNamespace:
		return 4
	case selectiveFields[t.Name] && t.Values[0] != "":
		return 1
	default:
		return 3
	}
}

// dimension is that of a term: the one that is there, or an empty one.
func (x *index) dimension(t object.Term) *dimension {
	if t.Label {
		if d := x.labels[t.Name]; d != nil {
			return d
		}
	} else if i := slices.IndexFunc(x.fields, func(d *dimension) bool { return d.name == t.Name }); i >= 0 {
		return x.fields[i]
	}
	return &dimension{label: t.Label, name: t.Name, feeds: map[scopedValue][]*Feed{}}
}

// openDimension makes look-ups heed a dimension.
func (x *index) openDimension(d *dimension) {
	switch {
	case !d.label:
		x.fields = append(x.fields, d)
	case x.labels == nil:
		x.labels = map[string]*dimension{d.name: d}
	default:
		x.labels[d.name] = d
	}
}

// dropDimension undoes open.
func (x *index) dropDimension(d *dimension) {
	if d.label {
		delete(x.labels, d.name)
		return
	}
	x.fields = slices.DeleteFunc(x.fields, func(other *dimension) bool { return other == d })
}

// find returns the feeds that an event may concern, each once. They are valid until the next call.
func (x *index) find(e *object.Event) []*Feed {
	x.lookup++
	x.found = x.found[:0]
	if e.Object() == nil {
		return nil
	}
	x.found = append(x.found, x.unindexed...)
	if e.Old != nil {
		x.matchObject(e.Old)
	}
	if e.New != nil {
		x.matchObject(e.New)
	}
	return x.found
}

// matchObject adds the feeds that stand under what one version of an object is.
func (x *index) matchObject(o *object.Object) {
	namespace := o.Namespace()
	for _, d := range x.fields {
		x.collectFeeds(d, namespace, o.Fields().Get(d.name))
	}
	if len(x.labels) == 0 {
		return
	}
	for i := range o.NumLabels() {
		name, value := o.Label(i)
		if d := x.labels[name]; d != nil {
			x.collectFeeds(d, namespace, value)
		}
	}
}

func (x *index) collectFeeds(d *dimension, namespace, value string) {
	if d.free > 0 {
		x.takeFeeds(d.feeds[scopedValue{"", value}])
	}
	if d.scoped > 0 && namespace != "" {
		x.takeFeeds(d.feeds[scopedValue{namespace, value}])
	}
}

func (x *index) takeFeeds(feeds []*Feed) {
	for _, f := range feeds {
		if f.entry.found != x.lookup {
			f.entry.found = x.lookup
			x.found = append(x.found, f)
		}
	}
}

// count notes n more spots.
func (d *dimension) count(namespace string, n int) {
	if namespace == "" {
		d.free += n
	} else {
		d.scoped += n
	}
}

// feedsAt is how many feeds stand at some spots.
func (d *dimension) feedsAt(namespace string, values []string) int {
	n := 0
	for _, v := range values {
		n += len(d.feeds[scopedValue{namespace, v}])
	}
	return n
}

// removeFeed is feeds without one of them, in any order.
func removeFeed(feeds []*Feed, f *Feed) []*Feed {
	i, last := slices.Index(feeds, f), len(feeds)-1
	feeds[i], feeds[last] = feeds[last], nil
	return feeds[:last]
}
