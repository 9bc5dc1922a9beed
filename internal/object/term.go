package object

// Term is a condition that names what it wants: a field or a label of an object has one of some
// values. An index can look such objects and such selectors up; any other condition can only be
// evaluated.
type Term struct {
	Label  bool // the name is that of a label, which has to be there; a field that is not there is ""
	Name   string
	Values []string
}

// Terms are the selector's: whatever it matches satisfies each of them, but it may demand more. The
// scope is a term, too, for it is what metadata.namespace and metadata.name say. None are left out,
// but those that name no value.
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
		if one.kind != within || one.number == 0 {
			continue
		}
		t := Term{Label: label, Name: c.at(one.name)}
		for _, v := range c.values[one.first : one.first+one.number] {
			t.Values = append(t.Values, c.at(v))
		}
		terms = append(terms, t)
	}
	return terms
}
