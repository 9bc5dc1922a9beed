package object

import (
	"k8s.io/apimachinery/pkg/selection"
)

// Term is a condition that names what it wants: a field or a label of an object has one of some values. An index can look such
// objects and such selectors up, where any other condition can only be asked.
type Term struct {
	Label  bool // the name is that of a label, which has to be there; a field that is not there is ""
	Name   string
	Values []string
}

// Terms are the selector's: whatever it matches satisfies each of them, but it may demand more. The scope is a term, too, for it is what
// metadata.namespace and metadata.name say. None are left out, but those that name no value.
func (s Selector) Terms() []Term {
	var terms []Term
	add := func(label bool, name string, values ...string) {
		terms = append(terms, Term{Label: label, Name: name, Values: values})
	}
	if s.Namespace != "" {
		add(false, FieldNamespace, s.Namespace)
	}
	if s.Name != "" {
		add(false, FieldName, s.Name)
	}
	if s.fields != nil {
		for _, r := range s.fields.Requirements() {
			if equality(r.Operator) {
				add(false, r.Field, r.Value)
			}
		}
	}
	if s.labels != nil {
		requirements, _ := s.labels.Requirements()
		for _, r := range requirements {
			if equality(r.Operator()) {
				add(true, r.Key(), r.ValuesUnsorted()...)
			}
		}
	}
	return terms
}

func equality(op selection.Operator) bool {
	return op == selection.Equals || op == selection.DoubleEquals || op == selection.In
}
