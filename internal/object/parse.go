package object

import (
	"bytes"
	"fmt"
	"strconv"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
)

// Parse reads one object of the resource from raw, which it keeps: the caller must not change it afterwards. An item of a
// built-in list, which lacks kind and apiVersion, gets them (W-60).
//
// A resourceVersion that is not a decimal number is an error: such resources cannot be cached (design D2).
func (r *Resource) Parse(raw []byte) (*Object, error) {
	raw = bytes.TrimSpace(raw)
	o := &Object{resource: r, raw: r.withType(raw)}
	if r.Builtin && bytes.HasPrefix(o.raw, []byte(r.typePrefix)) {
		o.typeEnd = len(r.typePrefix)
	}
	p := parser{scanner: scanner{b: o.raw}, o: o}
	if err := p.parse(); err != nil {
		return nil, fmt.Errorf("%s object at byte %d of %d: %w", r, p.i, len(o.raw), err)
	}
	return o, nil
}

// withType gives an item of a built-in list the type that items leave out.
func (r *Resource) withType(raw []byte) []byte {
	if !r.Builtin || !bytes.HasPrefix(raw, []byte("{")) || bytes.HasPrefix(raw, []byte(`{"kind":`)) || bytes.HasPrefix(raw, []byte(`{"apiVersion":`)) {
		return raw
	}
	out := make([]byte, 0, len(r.typePrefix)+len(raw)-1)
	out = append(out, r.typePrefix...)
	return append(out, raw[1:]...)
}

// parser is one walk over an object's JSON.
type parser struct {
	scanner
	o               *Object
	name, namespace string
}

func (p *parser) parse() error {
	o := p.o
	if n := len(o.resource.fields); n > 0 {
		o.values = make([]string, n)
		for i, f := range o.resource.fields {
			o.values[i] = f.Default
		}
	}
	if err := p.members(p.topLevel); err != nil {
		return err
	}
	if p.space(); p.i < len(p.b) {
		return errSyntax
	}
	if o.rv.end == 0 {
		return fmt.Errorf("metadata.resourceVersion is missing")
	}
	o.Key = o.resource.key(p.namespace, p.name)
	return nil
}

func (p *parser) topLevel(key string) error {
	if key == "metadata" && p.peek() == '{' {
		if p.o.metadata.end > 0 { // its members could be in either: upstream writes one
			return errSyntax
		}
		start := p.i
		err := p.members(p.metadata)
		p.o.metadata = span{start, p.i}
		return err
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
		return p.members(func(key string) error { return p.descend(node, key) })
	case node.field < 0:
		return p.skip()
	}
	text, ok, err := p.scalar()
	if ok {
		node.set(p.o.values, text)
	}
	return err
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
	digits := string(p.b[sp.start:sp.end])
	rv, err := strconv.ParseUint(digits, 10, 64)
	if err != nil {
		return fmt.Errorf("metadata.resourceVersion %q is not a decimal number", digits)
	}
	p.o.RV, p.o.rv = rv, sp
	return nil
}

func (p *parser) labels() error {
	if p.peek() != '{' {
		p.o.Labels = nil
		return p.skip()
	}
	return p.members(func(key string) error {
		value, _, err := p.scalar()
		if err != nil {
			return err
		}
		if p.o.Labels == nil {
			p.o.Labels = labels.Set{}
		}
		p.o.Labels[key] = value
		return nil
	})
}
