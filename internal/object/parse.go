package object

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"strconv"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/types"
)

// serials counts the objects that were parsed.
var serials atomic.Uint64

// Parse reads one object of the resource from raw, of which it keeps a copy, exactly as large as it
// needs to be: an object stays for long. An item of a built-in list, which lacks kind and
// apiVersion, gets them (W-60).
//
// A resourceVersion that is not a decimal number is an error: such resources cannot be mirrored
// (design D2).
func (r *Resource) Parse(raw []byte) (*Object, error) {
	kept := r.copyKept(raw)
	o := &Object{resource: r, raw: kept, serial: serials.Add(1)}
	if r.Builtin && bytes.HasPrefix(kept, []byte(r.typePrefix)) {
		o.typeEnd = uint32(len(r.typePrefix)) // #nosec G115 -- a prefix of a few bytes
	}
	p := parser{scanner: scanner{b: kept}, o: o}
	if err := p.parse(); err != nil {
		return nil, fmt.Errorf("%s object at byte %d of %d: %w", r, p.i, len(kept), err)
	}
	return o, nil
}

// copyKept is a copy of raw as an object keeps it: with its type, without what is to be stripped.
func (r *Resource) copyKept(raw []byte) []byte {
	raw = bytes.TrimSpace(raw)
	isCopy := false
	if r.stripped.Load() {
		raw, isCopy = withoutManagedFields(raw)
	}
	if r.lacksType(raw) {
		kept := make([]byte, 0, len(r.typePrefix)+len(raw)-1)
		kept = append(kept, r.typePrefix...)
		return append(kept, raw[1:]...)
	}
	if isCopy {
		return raw
	}
	kept := make([]byte, len(raw))
	copy(kept, raw)
	return kept
}

// lacksType reports that raw has no type, as the items of built-in lists.
func (r *Resource) lacksType(raw []byte) bool {
	return r.Builtin && bytes.HasPrefix(raw, []byte("{")) && !bytes.HasPrefix(raw, []byte(`{"kind":`)) &&
		!bytes.HasPrefix(raw, []byte(`{"apiVersion":`))
}

// parser is one walk over an object's JSON. It stays on the stack, and so do the values that it
// finds, until their number is known.
type parser struct {
	scanner
	o               *Object
	name, namespace string
	values          []span // as in Object
}

func (p *parser) parse() error {
	o := p.o
	if int64(len(o.raw)) > math.MaxUint32 {
		return errors.New("it is too large")
	}
	var room [64]span
	p.values = append(room[:0], make([]span, len(o.resource.fields))...)
	m := p.members()
	for m.next() {
		m.err = p.topLevel(m.key)
	}
	if m.err != nil {
		return m.err
	}
	if p.space(); p.i < len(p.b) {
		return errSyntax
	}
	if o.rv.end == 0 {
		return errors.New("metadata.resourceVersion is missing")
	}
	o.Key = o.resource.key(p.namespace, p.name)
	if len(p.values) > 0 {
		o.values = make([]span, len(p.values))
		copy(o.values, p.values)
	}
	o.isUnordered = !o.hasOrderedLabels()
	return nil
}

// hasOrderedLabels reports that the labels ascend, each once.
func (o *Object) hasOrderedLabels() bool {
	all := o.labels()
	for i := 2; i < len(all); i += 2 {
		if o.text(all[i-2]) >= o.text(all[i]) {
			return false
		}
	}
	return true
}

func (p *parser) topLevel(key string) error {
	if key == "metadata" && p.peek() == '{' {
		if p.o.metadata != (span{}) { // a second one: upstream writes one
			return errSyntax
		}
		start := p.i
		m := p.members()
		for m.next() {
			m.err = p.metadata(m.key)
		}
		p.o.metadata = p.span(start)
		return m.err
	}
	return p.descend(p.o.resource.paths, key)
}

// descend looks for selectable fields below a member.
func (p *parser) descend(at *pathNode, key string) error {
	node := at.children[key]
	switch {
	case node == nil:
		return p.skip()
	case node.children != nil && p.peek() == '{':
		m := p.scanner.members()
		for m.next() {
			m.err = p.descend(node, m.key)
		}
		return m.err
	case node.field == noField:
		return p.skip()
	}
	sp, ok, err := p.value()
	if ok {
		node.set(p.values, sp)
	}
	return err
}

// value is the place of the scalar that comes next.
func (p *parser) value() (sp span, ok bool, err error) {
	sp, spelled, ok, err := p.scalar()
	p.o.hasEscapes = p.o.hasEscapes || !spelled
	return sp, ok, err
}

// metadata reads one member of the metadata. Null says nothing, as in encoding/json.
func (p *parser) metadata(key string) (err error) {
	if key != "labels" && p.peek() == 'n' {
		return p.skip()
	}
	switch key {
	case "name":
		p.name, err = p.str()
	case "namespace":
		p.namespace, err = p.str()
	case "uid":
		var uid string
		uid, err = p.str()
		p.o.UID = types.UID(uid)
	case "resourceVersion":
		err = p.resourceVersion()
	case "labels":
		err = p.labels()
	default:
		err = p.skip()
	}
	return err
}

func (p *parser) resourceVersion() error {
	sp, _, err := p.strSpan()
	if err != nil {
		return err
	}
	digits := view(p.b[sp.start:sp.end])
	rv, err := strconv.ParseUint(digits, 10, 64)
	if err != nil {
		return fmt.Errorf("metadata.resourceVersion %q is not a decimal number", digits)
	}
	p.o.RV, p.o.rv = rv, sp
	return nil
}

func (p *parser) labels() error {
	if p.peek() != '{' {
		p.values = p.values[:len(p.o.resource.fields)]
		return p.skip()
	}
	m := p.members()
	for m.next() {
		name := m.at
		p.o.hasEscapes = p.o.hasEscapes || m.key != view(p.b[name.start:name.end])
		var value span
		if value, _, m.err = p.value(); m.err == nil {
			p.values = append(p.values, name, value)
		}
	}
	return m.err
}
