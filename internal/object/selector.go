package object

import (
	"strconv"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
)

// Selector says which objects a client sees: scope, labels and fields. Equal selectors have equal Keys.
// The zero value sees everything.
type Selector struct {
	Namespace, Name string // the scope; "" is all
	labels          labels.Selector
	fields          fields.Selector
	key             string // of labels and fields: the scope may be set without NewSelector
}

// NewSelector makes a selector. Nil selectors see everything.
func NewSelector(namespace, name string, l labels.Selector, f fields.Selector) Selector {
	s := Selector{Namespace: namespace, Name: name}
	if l != nil && !l.Empty() {
		s.labels = l
	}
	if f != nil && !f.Empty() {
		s.fields = f
	}
	if s.labels != nil {
		s.key += "l" + strconv.Quote(s.labels.String())
	}
	if s.fields != nil {
		s.key += "f" + strconv.Quote(s.fields.String())
	}
	return s
}

// Key identifies the selector among those of one resource.
func (s Selector) Key() string {
	return strconv.Quote(s.Namespace) + strconv.Quote(s.Name) + s.key
}

// ScopeOnly reports that neither labels nor fields are selected, so that whether an object is seen never changes.
func (s Selector) ScopeOnly() bool { return s.labels == nil && s.fields == nil }

// Fixed reports that whether an object is seen never changes while it exists: nothing is selected but by name and namespace.
func (s Selector) Fixed() bool {
	if s.labels != nil {
		return false
	}
	if s.fields == nil {
		return true
	}
	for _, r := range s.fields.Requirements() {
		if r.Field != FieldName && r.Field != FieldNamespace {
			return false
		}
	}
	return true
}

// LabelQuery is the selector's labels as a request spells them, "" if any will do.
func (s Selector) LabelQuery() string {
	if s.labels == nil {
		return ""
	}
	return s.labels.String()
}

// FieldQuery is the selector's fields, its name among them, as a request in its namespace spells them, "" if any will do.
func (s Selector) FieldQuery() string {
	f := s.fields
	if s.Name != "" {
		name := fields.OneTermEqualSelector(FieldName, s.Name)
		if f == nil {
			f = name
		} else if selected, ok := f.RequiresExactMatch(FieldName); !ok || selected != s.Name {
			f = fields.AndSelectors(name, f)
		}
	}
	if f == nil {
		return ""
	}
	return f.String()
}

// Matches reports whether the selector sees the object.
func (s Selector) Matches(o *Object) bool {
	if s.Namespace != "" && s.Namespace != o.Namespace() {
		return false
	}
	if s.Name != "" && s.Name != o.Name() {
		return false
	}
	if s.labels != nil && !s.labels.Matches(o.Labels()) {
		return false
	}
	return s.fields == nil || s.fields.Matches(o.Fields())
}

// Seen reports what a client with this selector is told about e: that an object appeared, changed, or went away, and
// which version it is shown; false if nothing (W-103). A deletion shows the version that last matched, at e.RV.
func (s Selector) Seen(e *Event) (Type, *Object, bool) {
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
