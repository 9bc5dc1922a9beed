package fanout

import (
	"slices"

	"spillway/internal/object"
)

// index finds the feeds that an event may concern, at the cost of those that it finds. It belongs
// to the dispatcher.
//
// A feed stands under one term of its selector: in one spot for each value that the term allows,
// within the namespace if the selector names one. An event is looked up with both versions of its
// object, because a feed must also learn of what leaves it. What is found is still evaluated
// (Selector.EventFor): the index leaves out only feeds that the event cannot concern. A feed whose
// selector has no usable term, such as one that sees everything, is found by every event.
//
// The alternative, to evaluate every feed's selector, makes an event cost as much as there are
// watchers: with 5000 kubelets, 5000 evaluations for the one or two that have the pod.
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
	isLabel     bool // else a field
	name        string
	feeds       map[scopedValue][]*Feed
	scopedSpots int // scopedValues that name a namespace, counted by feed
	freeSpots   int // those that name none, likewise
}

// scopedValue is a value, in a namespace or in all.
type scopedValue struct{ namespace, value string }

// indexEntry is where the index has a feed.
type indexEntry struct {
	number     int        // in index.all
	dimension  *dimension // nil: in index.unindexed
	namespace  string
	values     []string
	lastLookup uint64 // that found it
}

// maxTermValues is how many values a usable term may allow. Each is an entry in memory; to evaluate
// the selector is cheaper than a thousand of them.
const maxTermValues = 16

// selectiveFields are the fields whose values few objects share. Labels come next, because their
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
	entry := &f.entry
	entry.dimension.count(entry.namespace, len(entry.values))
	for _, v := range entry.values {
		at := scopedValue{entry.namespace, v}
		entry.dimension.feeds[at] = append(entry.dimension.feeds[at], f)
	}
}

// remove forgets a feed that was added.
func (x *index) remove(f *Feed) {
	entry := f.entry
	last := x.all[len(x.all)-1]
	x.all[entry.number], last.entry.number = last, entry.number
	x.all[len(x.all)-1] = nil
	x.all = x.all[:len(x.all)-1]
	x.found = nil // else it could keep the feed in memory
	f.entry = indexEntry{}
	if entry.dimension == nil {
		x.unindexed = removeFeed(x.unindexed, f)
		return
	}
	entry.dimension.count(entry.namespace, -len(entry.values))
	for _, v := range entry.values {
		at := scopedValue{entry.namespace, v}
		if left := removeFeed(entry.dimension.feeds[at], f); len(left) > 0 {
			entry.dimension.feeds[at] = left
		} else {
			delete(entry.dimension.feeds, at)
		}
	}
	if len(entry.dimension.feeds) == 0 {
		x.dropDimension(entry.dimension)
	}
}

// chooseDimension decides under which term a feed stands: the one that few objects satisfy, by its
// kind, and among equals the one that fewest feeds share. So a label that all feeds demand alike
// gets one of them. It returns false if no term is usable.
func (x *index) chooseDimension(f *Feed) bool {
	terms := f.selector.Terms()
	selected := namespaceOf(terms)
	bestRank, fewestFeeds := 0, 0
	entry := &f.entry
	for _, t := range terms {
		if len(t.Values) > maxTermValues {
			continue
		}
		namespace := selected
		if isNamespace(t) {
			namespace = "" // it would say the same twice
		}
		d := x.dimension(t)
		rank, feeds := rankOf(t), d.feedsAt(namespace, t.Values)
		if entry.dimension == nil || rank < bestRank || rank == bestRank && feeds < fewestFeeds {
			bestRank, fewestFeeds = rank, feeds
			entry.dimension, entry.namespace, entry.values = d, namespace, t.Values
		}
	}
	if entry.dimension != nil && len(entry.dimension.feeds) == 0 {
		x.openDimension(entry.dimension)
	}
	return entry.dimension != nil
}

func isNamespace(t object.Term) bool { return !t.Label && t.Name == object.FieldNamespace }

// namespaceOf is the namespace that terms demand; empty: any.
func namespaceOf(terms []object.Term) string {
	if i := slices.IndexFunc(terms, isNamespace); i >= 0 {
		return terms[i].Values[0]
	}
	return ""
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
	return &dimension{isLabel: t.Label, name: t.Name, feeds: map[scopedValue][]*Feed{}}
}

// openDimension makes look-ups use a dimension.
func (x *index) openDimension(d *dimension) {
	switch {
	case !d.isLabel:
		x.fields = append(x.fields, d)
	case x.labels == nil:
		x.labels = map[string]*dimension{d.name: d}
	default:
		x.labels[d.name] = d
	}
}

// dropDimension undoes openDimension.
func (x *index) dropDimension(d *dimension) {
	if d.isLabel {
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
	if d.freeSpots > 0 {
		x.takeFeeds(d.feeds[scopedValue{"", value}])
	}
	if d.scopedSpots > 0 && namespace != "" {
		x.takeFeeds(d.feeds[scopedValue{namespace, value}])
	}
}

func (x *index) takeFeeds(feeds []*Feed) {
	for _, f := range feeds {
		if f.entry.lastLookup != x.lookup {
			f.entry.lastLookup = x.lookup
			x.found = append(x.found, f)
		}
	}
}

// count counts n more spots.
func (d *dimension) count(namespace string, n int) {
	if namespace == "" {
		d.freeSpots += n
	} else {
		d.scopedSpots += n
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
