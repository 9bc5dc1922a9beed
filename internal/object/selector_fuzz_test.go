package object

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
)

// FuzzSelector holds a Selector against the conditions it is made of, in every scope: it sees what
// all of them see. A selector that has the same key sees the same, or clients would share a feed
// that is not theirs; and the change of an object shows as W-103 has it.
func FuzzSelector(f *testing.F) {
	for _, seed := range []struct{ label, field, namespace, name, before, now string }{
		{"app=x", "", "n", "", "app=x", "app=y"},
		{"app in (x,y),!tier", "spec.nodeName=node-1", "", "a", "app=y", "app=y,tier=1"},
		{"app notin (x,),tier", "metadata.name!=a,status.phase!=Running", "other", "", "", "tier="},
		{"app>3,app<7", "metadata.namespace=n", "", "", "app=5", "app=9"},
		{" app == x , !b ", `metadata.name=a\,b`, "n", "b", "app=x", "b=1"},
		{"a/b,c.d/e!=f", "spec.hostNetwork=false,spec.host=", "", "", "a/b=", "c.d/e=f"},
		{"app in ()", ",,,", "", "", "app=", "app"},
	} {
		f.Add(seed.label, seed.field, seed.namespace, seed.name, seed.before, seed.now)
	}
	f.Fuzz(func(t *testing.T, labelText, fieldText, namespace, name, before, now string) {
		l, err := labels.Parse(labelText)
		if err != nil {
			return
		}
		of, err := fields.ParseSelector(fieldText)
		if err != nil {
			return
		}
		e := &Event{Old: labelled(t, before), New: labelled(t, now)}
		s := NewSelector(namespace, name, l, of)
		for _, o := range []*Object{e.Old, e.New} {
			want := (namespace == "" || namespace == o.Namespace()) && (name == "" || name == o.Name()) &&
				l.Matches(labelSet{o}) && of.Matches(o.Fields())
			if s.Matches(o) != want {
				t.Errorf("%s of %v: %t, want %t", s.Key(), labelsOf(o), !want, want)
			}
			checkTerms(t, s, o, want)
		}
		checkSeen(t, s, e)
		checkKey(t, s, namespace, name, l.String(), of.String(), e)
	})
}

// labelled is a pod with labels such as a=b,c=d.
func labelled(t *testing.T, text string) *Object {
	t.Helper()
	set := labels.Set{}
	for pair := range strings.SplitSeq(text, ",") {
		key, value, _ := strings.Cut(pair, "=")
		set[key] = value
	}
	written, err := json.Marshal(set)
	if err != nil {
		t.Fatal(err)
	}
	return mustParse(t, pods, `{"metadata":{"namespace":"n","name":"a","uid":"u","resourceVersion":"7","labels":`+
		string(written)+
		`},"spec":{"nodeName":"node-1"},"status":{"phase":"Running"}}`)
}

// labelsOf are the labels of an object as a map, nil if there are none.
func labelsOf(o *Object) labels.Set {
	var set labels.Set
	for i := range o.NumLabels() {
		if set == nil {
			set = labels.Set{}
		}
		name, value := o.Label(i)
		set[name] = value
	}
	return set
}

// checkTerms: what is seen satisfies every term.
func checkTerms(t *testing.T, s Selector, o *Object, seen bool) {
	t.Helper()
	for _, term := range s.Terms() {
		value, ok := labelSet{o}.Lookup(term.Name)
		if !term.Label {
			value, ok = o.Fields().Get(term.Name), true
		}
		if seen && !(ok && slices.Contains(term.Values, value)) {
			t.Errorf("%s sees %v, and yet has the term %+v", s.Key(), labelsOf(o), term)
		}
	}
}

func checkSeen(t *testing.T, s Selector, e *Event) {
	t.Helper()
	typ, shown, ok := s.EventFor(e)
	before, now := s.Matches(e.Old), s.Matches(e.New)
	switch {
	case ok != (before || now):
		t.Errorf("%s: told %t, matched before %t, now %t", s.Key(), ok, before, now)
	case !ok:
	case now && (shown != e.New || (typ == Added) == before || typ == Deleted), !now && (shown != e.Old || typ != Deleted):
		t.Errorf("%s: told %v of %p, matched before %t, now %t", s.Key(), typ, shown, before, now)
	}
}

// checkKey reads the selector again as it prints itself: that is what its key is made of.
func checkKey(t *testing.T, s Selector, namespace, name, labelText, fieldText string, e *Event) {
	t.Helper()
	l, err := labels.Parse(labelText)
	if err != nil {
		return // some print what does not parse, such as a blank between values; none of those is another's text
	}
	of, err := fields.ParseSelector(fieldText)
	if err != nil {
		t.Errorf("the field selector prints itself as %q: %v", fieldText, err)
		return
	}
	again := NewSelector(namespace, name, l, of)
	if again.Key() != s.Key() {
		return // read again it is sorted otherwise, which costs a feed and nothing else
	}
	for _, o := range []*Object{e.Old, e.New} {
		if again.Matches(o) != s.Matches(o) {
			t.Errorf("both have the key %s, and one of them sees %v", s.Key(), labelsOf(o))
		}
	}
}
