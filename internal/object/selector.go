package object

import (
	"crypto/sha256"
	"strconv"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
)

// Selector says which objects a client sees: scope, labels and fields. Equal selectors have equal
// Keys. The zero value sees everything.
type Selector struct {
	Namespace, Name string // the scope; "" is all
	labels          *conditions
	fields          *conditions
	key             string // of labels and fields: the scope may be set without NewSelector
}

// NewSelector makes a selector. Nil selectors see everything.
func NewSelector(namespace, name string, l labels.Selector, f fields.Selector) Selector {
	s := Selector{Namespace: namespace, Name: name, labels: labelConditions(l), fields: fieldConditions(f)}
	s.key = s.labels.key("l") + s.fields.key("f")
	return s
}

// longQueryBytes is the length from which on a digest stands for a query in a key.
const longQueryBytes = 256

// key tells the selector from others of its kind.
func (c *conditions) key(kind string) string {
	switch {
	case c == nil:
		return ""
	case len(c.query) < longQueryBytes:
		return kind + strconv.Quote(c.query)
	}
	digest := sha256.Sum256([]byte(c.query))
	return kind + "#" + string(digest[:])
}

// Key identifies the selector among those of one resource.
func (s Selector) Key() string {
	return strconv.Quote(s.Namespace) + strconv.Quote(s.Name) + s.key
}

// Weight is what the selector costs in memory, and in time where an index cannot find it: the
// number of its names and values, or more if these are long. A scope alone weighs nothing.
func (s Selector) Weight() int {
	terms, length := 0, 0
	for _, c := range []*conditions{s.labels, s.fields} {
		if c != nil {
			terms, length = terms+c.terms, length+len(c.query)
		}
	}
	return max(terms, length/termBytes)
}

const (
	// LightWeightLimit is the weight up to which a selector is light: 256 terms, or 8 KiB.
	LightWeightLimit = 256
	// termBytes is the length of a selector that weighs as much as a term.
	termBytes = 32
)

// Light reports that matching costs little, whatever the object.
func (s Selector) Light() bool { return s.Weight() <= LightWeightLimit }

// Size is about how many bytes of memory the selector takes.
func (s Selector) Size() int { return s.labels.size() + s.fields.size() }

// ScopeOnly reports that neither labels nor fields are selected, so that whether an object is seen
// never changes.
func (s Selector) ScopeOnly() bool { return s.labels == nil && s.fields == nil }

// IsEverything reports that every object is selected.
func (s Selector) IsEverything() bool { return s.ScopeOnly() && s.Namespace == "" && s.Name == "" }

// Scope is the selector without its labels and fields.
func (s Selector) Scope() Selector { return Selector{Namespace: s.Namespace, Name: s.Name} }

// Single reports that the selector is one name with one value, besides its scope.
func (s Selector) Single() bool {
	only := s.labels
	if only == nil {
		only = s.fields
	} else if s.fields != nil {
		return false
	}
	return only != nil && only.terms == 1 && len(only.all) == 1 && only.all[0].kind == oneOf
}

// Fixed reports that whether an object is seen never changes while it exists: the selector names
// only metadata.name and metadata.namespace.
func (s Selector) Fixed() bool {
	if s.labels != nil {
		return false
	}
	if s.fields == nil {
		return true
	}
	for _, one := range s.fields.all {
		if name := s.fields.at(one.name); name != FieldName && name != FieldNamespace {
			return false
		}
	}
	return !s.fields.nothing
}

// LabelQuery is the selector's labels as a request spells them, "" if any will do.
func (s Selector) LabelQuery() string {
	if s.labels == nil {
		return ""
	}
	return s.labels.query
}

// FieldQuery is the selector's fields, its name among them, as a request in its namespace spells
// them, "" if any will do.
func (s Selector) FieldQuery() string {
	query := ""
	if s.fields != nil {
		query = s.fields.query
	}
	if s.Name == "" || s.fields.requires(FieldName, s.Name) {
		return query
	}
	name := fields.OneTermEqualSelector(FieldName, s.Name).String()
	if query == "" {
		return name
	}
	return name + "," + query
}

// requires reports that a name must have a value, and may have no other.
func (c *conditions) requires(name, value string) bool {
	if c == nil {
		return false
	}
	i := c.find(name)
	if i == len(c.all) || c.at(c.all[i].name) != name || c.all[i].kind != oneOf || c.all[i].valueCount != 1 {
		return false
	}
	return c.at(c.values[c.all[i].firstValue]) == value
}

// Matches reports whether the selector sees the object.
func (s Selector) Matches(o *Object) bool {
	if s.Namespace != "" && s.Namespace != o.Namespace() {
		return false
	}
	if s.Name != "" && s.Name != o.Name() {
		return false
	}
	if s.fields != nil && !s.fields.matchFields(fieldSet{o}) {
		return false
	}
	return s.labels == nil || s.labels.matchLabels(o)
}

// EventFor reports how a client with this selector sees e: as an object that appeared, changed or
// disappeared, and in which version; false if not at all (W-103). A deletion shows the version that
// last matched, at e.RV.
func (s Selector) EventFor(e *Event) (Type, *Object, bool) {
	now := e.New != nil && s.Matches(e.New)
	before := e.Old != nil && s.Matches(e.Old)
	switch {
	case now && before:
		return Modified, e.New, true
	case now:
		return Added, e.New, true
	case before:
		return Deleted, e.Old, true
	default:
		return 0, nil, false
	}
}

// Term is a condition that names values: a field or a label of an object has one of them. An index
// finds such objects and such selectors; any other condition can only be evaluated.
type Term struct {
	Label  bool // the name is a label's, which has to be there; a field that is not there is ""
	Name   string
	Values []string
}

// Terms are all conditions of the selector that name values. An object that matches satisfies each
// of them, but the selector may demand more. The scope is the terms of metadata.namespace and
// metadata.name.
func (s Selector) Terms() []Term {
	var terms []Term
	if s.Namespace != "" {
		terms = append(terms, Term{Name: FieldNamespace, Values: []string{s.Namespace}})
	}
	if s.Name != "" {
		terms = append(terms, Term{Name: FieldName, Values: []string{s.Name}})
	}
	return s.labels.appendTerms(s.fields.appendTerms(terms, false), true)
}

// appendTerms appends the conditions that name values.
func (c *conditions) appendTerms(terms []Term, label bool) []Term {
	if c == nil || c.nothing {
		return terms
	}
	for _, one := range c.all {
		if one.kind != oneOf || one.valueCount == 0 {
			continue
		}
		t := Term{Label: label, Name: c.at(one.name)}
		for _, v := range c.values[one.firstValue : one.firstValue+one.valueCount] {
			t.Values = append(t.Values, c.at(v))
		}
		terms = append(terms, t)
	}
	return terms
}
