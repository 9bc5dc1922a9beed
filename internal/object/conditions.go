package object

import (
	"cmp"
	"math/bits"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
)

// conditions are the requirements of one label or field selector.
//
// They are sorted by name, and those of one name are merged, so that matching an object costs what
// the object has and not what the selector demands: each label of the object is searched among the
// conditions. apimachinery's own form, which evaluates requirement by requirement, costs both
// multiplied; the client chooses the one, and often the other.
//
// Names and values are offsets into one text, because a client may send some hundred thousand of
// them: a term takes 28 bytes and its text, where apimachinery's takes 230. Immutable.
type conditions struct {
	query   string // the selector as a request spells it
	text    string // holds all names and values; it is query, but where query has escapes
	nothing bool   // no object matches
	all     []condition
	values  []span // those of one condition are ascending and distinct
	demands int    // how many of the conditions only an object with their name meets
	terms   int    // names and values in the selector as it was sent
}

// condition is what one name of an object has to satisfy.
type condition struct {
	name       span
	kind       conditionKind
	firstValue uint32 // index in conditions.values
	valueCount uint32
}

type conditionKind uint8

// The kinds; those of one name are in this order.
const (
	oneOf   conditionKind = iota // has one of the values
	present                      // is there
	above                        // is a number above the value
	below                        // is a number below the value
	noneOf                       // has none of the values, or is not there
	absent                       // is not there
)

// demandsName reports that a name has to be there.
func (k conditionKind) demandsName() bool { return k <= below }

// labelConditions are those of a label selector, nil if it selects everything.
func labelConditions(s labels.Selector) *conditions {
	if s == nil || s.Empty() {
		return nil
	}
	requirements, selectable := s.Requirements()
	c := &conditions{nothing: !selectable}
	var b compiler
	for i := range requirements {
		r := &requirements[i]
		values := r.ValuesUnsorted()
		slices.Sort(values)
		b.label(r, values)
		c.terms += max(1, len(values))
	}
	c.text = strings.Clone(b.text.String()) // which has room to grow
	c.query = c.text
	b.compile(c)
	return c
}

// fieldConditions are those of a field selector, nil if it selects everything. A field that is
// missing is "".
func fieldConditions(s fields.Selector) *conditions {
	if s == nil || s.Empty() {
		return nil
	}
	requirements := s.Requirements()
	c := &conditions{nothing: len(requirements) == 0, query: s.String(), terms: len(requirements)}
	var b compiler
	for _, r := range requirements {
		b.field(r)
	}
	if c.text = c.query; b.text.String() != c.query {
		c.text = strings.Clone(b.text.String())
	}
	b.compile(c)
	return c
}

// compiler collects requirements, each with its name and values in the text.
type compiler struct {
	text strings.Builder
	raw  []requirement
}

type requirement struct {
	name   span
	kind   conditionKind
	values []span
}

// kindOf is the kind of condition of an operator of apimachinery.
func kindOf(op selection.Operator) conditionKind {
	switch op {
	case selection.NotIn, selection.NotEquals:
		return noneOf
	case selection.Exists:
		return present
	case selection.DoesNotExist:
		return absent
	case selection.GreaterThan:
		return above
	case selection.LessThan:
		return below
	}
	return oneOf
}

// label writes a requirement as apimachinery does.
func (b *compiler) label(r *labels.Requirement, values []string) {
	b.separate()
	one := requirement{kind: kindOf(r.Operator())}
	if one.kind == absent {
		b.text.WriteByte('!')
	}
	one.name = b.put(r.Key())
	end := ""
	switch op := r.Operator(); op {
	case selection.Exists, selection.DoesNotExist:
	case selection.In, selection.NotIn:
		b.text.WriteString(" " + string(op) + " (")
		end = ")"
	case selection.GreaterThan:
		b.text.WriteByte('>')
	case selection.LessThan:
		b.text.WriteByte('<')
	default:
		b.text.WriteString(string(op))
	}
	for i, v := range values {
		if i > 0 {
			b.text.WriteByte(',')
		}
		one.values = append(one.values, b.put(v))
	}
	b.text.WriteString(end)
	b.raw = append(b.raw, one)
}

// field writes a requirement, as apimachinery does where nothing has to be escaped.
func (b *compiler) field(r fields.Requirement) {
	b.separate()
	one := requirement{kind: kindOf(r.Operator), name: b.put(r.Field)}
	b.text.WriteString(string(r.Operator))
	one.values = []span{b.put(r.Value)}
	b.raw = append(b.raw, one)
}

func (b *compiler) separate() {
	if b.text.Len() > 0 {
		b.text.WriteByte(',')
	}
}

func (b *compiler) put(s string) span {
	start := b.text.Len()
	b.text.WriteString(s)
	return span{uint32(start), uint32(b.text.Len())} // #nosec G115 -- a selector comes in a head of a megabyte at most
}

// compile sorts and merges what was collected.
func (b *compiler) compile(c *conditions) {
	slices.SortStableFunc(b.raw, func(x, y requirement) int {
		return cmp.Or(cmp.Compare(c.at(x.name), c.at(y.name)), cmp.Compare(x.kind, y.kind))
	})
	for len(b.raw) > 0 {
		first, n := b.raw[0], 1
		for n < len(b.raw) && b.raw[n].kind == first.kind && c.at(b.raw[n].name) == c.at(first.name) {
			n++
		}
		c.add(first.name, first.kind, c.merge(b.raw[:n]))
		b.raw = b.raw[n:]
	}
	c.all, c.values = slices.Clip(c.all), slices.Clip(c.values)
}

func (c *conditions) add(name span, kind conditionKind, values []span) {
	first, count := uint32(len(c.values)), uint32(len(values)) // #nosec G115 -- as put
	c.all = append(c.all, condition{name: name, kind: kind, firstValue: first, valueCount: count})
	c.values = append(c.values, values...)
	if kind.demandsName() {
		c.demands++
	}
}

// merge returns the values of the one condition that is equal to requirements of one name and kind.
func (c *conditions) merge(raw []requirement) []span {
	switch raw[0].kind {
	case oneOf:
		return c.intersect(raw)
	case noneOf:
		return c.unite(raw)
	case above, below:
		return c.narrowest(raw)
	}
	return nil // present, absent
}

// intersect returns the values that all requirements have.
func (c *conditions) intersect(raw []requirement) []span {
	values := raw[0].values
	for _, r := range raw[1:] {
		allowed := c.sortDistinct(r.values)
		values = slices.DeleteFunc(slices.Clone(values), func(v span) bool { return !c.includes(allowed, c.at(v)) })
	}
	return c.sortDistinct(values)
}

// unite returns the values that any requirement has.
func (c *conditions) unite(raw []requirement) []span {
	var values []span
	for _, r := range raw {
		values = append(values, r.values...)
	}
	return c.sortDistinct(values)
}

// narrowest returns the greatest bound of requirements of the kind above, the least of below.
func (c *conditions) narrowest(raw []requirement) []span {
	bound := raw[0].values
	for _, r := range raw[1:] {
		n, current := c.parse(r.values[0]), c.parse(bound[0])
		if r.kind == above && n > current || r.kind == below && n < current {
			bound = r.values
		}
	}
	return bound
}

// sortDistinct returns values in order, each once.
func (c *conditions) sortDistinct(values []span) []span {
	compare := func(x, y span) int { return cmp.Compare(c.at(x), c.at(y)) }
	if !slices.IsSortedFunc(values, compare) {
		values = slices.Clone(values)
		slices.SortFunc(values, compare)
	}
	return slices.CompactFunc(values, func(x, y span) bool { return compare(x, y) == 0 })
}

// parse is a value as a number, which apimachinery has validated.
func (c *conditions) parse(v span) int64 {
	n, _ := strconv.ParseInt(c.at(v), 10, 64)
	return n
}

func (c *conditions) at(s span) string { return c.text[s.start:s.end] }

// size is about how many bytes of memory they take.
func (c *conditions) size() int {
	if c == nil {
		return 0
	}
	n := len(c.query) + 20*len(c.all) + 8*len(c.values)
	if c.text != c.query {
		n += len(c.text)
	}
	return n
}

// find is the first condition of a name, or where it would be.
func (c *conditions) find(name string) int {
	low, high := 0, len(c.all)
	for low < high {
		if middle := int(uint(low+high) >> 1); c.at(c.all[middle].name) < name { // #nosec G115 -- not negative
			low = middle + 1
		} else {
			high = middle
		}
	}
	return low
}

// includes reports that a value is one of some, which are distinct.
func (c *conditions) includes(values []span, value string) bool {
	low, high := 0, len(values)
	for low < high {
		middle := int(uint(low+high) >> 1) // #nosec G115 -- not negative
		switch cmp.Compare(c.at(values[middle]), value) {
		case 0:
			return true
		case -1:
			low = middle + 1
		default:
			high = middle
		}
	}
	return false
}

// allows reports that a condition is met by an object that has its name, with a value.
func (c *conditions) allows(k *condition, value string) bool {
	values := c.values[k.firstValue : k.firstValue+k.valueCount]
	switch k.kind {
	case oneOf:
		return c.includes(values, value)
	case noneOf:
		return !c.includes(values, value)
	case present:
		return true
	case absent:
		return false
	}
	n, err := strconv.ParseInt(value, 10, 64)
	return err == nil && (k.kind == above && n > c.parse(values[0]) || k.kind == below && n < c.parse(values[0]))
}

// matchLabels reports that an object's labels meet all conditions. It walks along the labels or the
// conditions, whichever are fewer, and searches the others.
func (c *conditions) matchLabels(o *Object) bool {
	n := o.NumLabels()
	switch {
	case c.nothing:
		return false
	case o.isUnordered, len(c.all)*bits.Len(uint(n)) < n*bits.Len(uint(len(c.all))): // #nosec G115 -- not negative
		return c.matchEach(labelSet{o})
	}
	met := 0
	for i := range n {
		name, value := o.Label(i)
		for k := c.find(name); k < len(c.all) && c.at(c.all[k].name) == name; k++ {
			switch one := &c.all[k]; {
			case !c.allows(one, value):
				return false
			case one.kind.demandsName():
				met++
			}
		}
	}
	return met == c.demands
}

// matchEach looks up the name of each condition.
func (c *conditions) matchEach(set labelSet) bool {
	for i := range c.all {
		one := &c.all[i]
		value, hasName := set.Lookup(c.at(one.name))
		switch {
		case hasName && !c.allows(one, value):
			return false
		case !hasName && one.kind.demandsName():
			return false
		}
	}
	return true
}

// matchFields reports that an object's fields meet all conditions. A resource has few, so there are
// few conditions, too.
func (c *conditions) matchFields(set fieldSet) bool {
	if c.nothing {
		return false
	}
	for i := range c.all {
		if one := &c.all[i]; !c.allows(one, set.Get(c.at(one.name))) {
			return false
		}
	}
	return true
}
