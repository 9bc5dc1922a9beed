package object

import (
	"reflect"
	"testing"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
)

func selector(t testing.TB, namespace, name, l, f string) Selector {
	t.Helper()
	ls, err := labels.Parse(l)
	if err != nil {
		t.Fatal(err)
	}
	fs, err := fields.ParseSelector(f)
	if err != nil {
		t.Fatal(err)
	}
	return NewSelector(namespace, name, ls, fs)
}

// The example of W-103: what a client that selects app=x sees of one object's life.
func TestSelectorSeenTellsTheStory(t *testing.T) {
	version := func(rv, app, k string) *Object {
		return mustParse(t, builtin("", "configmaps", "ConfigMap", true),
			`{"metadata":{"name":"s","namespace":"n","resourceVersion":"`+rv+`","labels":{"app":"`+app+`"}},"data":{"k":"`+k+
				`"}}`)
	}
	s371, s372, s373 := version("371", "y", "v"), version("372", "x", "v"), version("373", "x", "2")
	s374, s375, s376 := version("374", "z", "3"), version("375", "z", "4"), version("376", "x", "4")
	everything, appX := Selector{}, selector(t, "n", "", "app=x", "")
	f := func(before, after *Object, rv uint64, all, selected string, shown *Object) {
		t.Helper()
		e := &Event{Old: before, New: after, RV: rv}
		if typ, o, ok := everything.EventFor(e); !ok || typ.String() != all || o != e.Object() {
			t.Errorf("%d, unfiltered: %s %v %v", rv, typ, o, ok)
		}
		typ, o, ok := appX.EventFor(e)
		if ok != (selected != "") || ok && typ.String() != selected || o != shown {
			t.Errorf("%d, app=x: %s %v %v, want %s", rv, typ, o, ok, selected)
		}
	}
	f(nil, s371, 371, "ADDED", "", nil)
	f(s371, s372, 372, "MODIFIED", "ADDED", s372)
	f(s372, s373, 373, "MODIFIED", "MODIFIED", s373)
	f(s373, s374, 374, "MODIFIED", "DELETED", s373) // old labels, old data
	f(s374, s375, 375, "MODIFIED", "", nil)
	f(s375, s376, 376, "MODIFIED", "ADDED", s376)
	f(s376, nil, 377, "DELETED", "DELETED", s376)
	f(s375, nil, 378, "DELETED", "", nil)

	if _, _, ok := everything.EventFor(&Event{RV: 379}); ok {
		t.Error("progress was shown as an event")
	}
}

func TestSelectorMatches(t *testing.T) {
	pod := mustParse(t, pods,
		`{"metadata":{"name":"a","namespace":"n","resourceVersion":"7","labels":{"app":"x"}},"spec":{"nodeName":"node-1"}}`)
	bare := mustParse(t, pods, `{"metadata":{"name":"b","namespace":"m","resourceVersion":"7"}}`)
	node := mustParse(t, nodes, `{"metadata":{"name":"a","resourceVersion":"7"}}`)
	f := func(o *Object, namespace, name, l, fs string, want bool) {
		t.Helper()
		if selector(t, namespace, name, l, fs).Matches(o) != want {
			t.Errorf("%s: scope %q %q, labels %q, fields %q is %v", o.Key, namespace, name, l, fs, !want)
		}
	}
	f(pod, "", "", "", "", true)
	f(pod, "n", "", "", "", true)
	f(pod, "", "a", "", "", true)
	f(pod, "n", "a", "", "", true)
	f(pod, "m", "", "", "", false)
	f(pod, "n", "b", "", "", false)
	f(pod, "", "", "app=x", "", true)
	f(pod, "", "", "app=x,tier!=db", "", true)
	f(pod, "", "", "!app", "", false)
	f(pod, "", "", "app in (x,y)", "spec.nodeName=node-1", true)
	f(pod, "", "", "app in (x,y)", "spec.nodeName=node-2", false)
	f(pod, "", "", "", "spec.host==node-1,metadata.namespace!=m", true)
	f(pod, "m", "", "app=x", "", false)
	f(bare, "", "", "app!=x", "", true)
	f(bare, "", "", "app", "", false)
	f(bare, "", "", "", "spec.nodeName=", true)
	f(bare, "", "", "", "spec.nodeName!=node-1,status.podIPs=", true)
	// A namespace path and another metadata.namespace match nothing (W-117).
	f(pod, "n", "", "", "metadata.namespace=m", false)
	f(node, "", "a", "", "spec.unschedulable=false", true)
	f(node, "n", "", "", "", false)
	if NewSelector("", "", labels.Nothing(), nil).Matches(pod) {
		t.Error("labels.Nothing matches")
	}
}

// A key names what is selected, however the selector came to be: feeds are shared by it.
func TestSelectorKeys(t *testing.T) {
	distinct := []Selector{
		{},
		selector(t, "n", "", "", ""),
		selector(t, "", "n", "", ""),
		selector(t, "n", "a", "", ""),
		selector(t, "na", "", "", ""),
		selector(t, "n", "", "app=x", ""),
		selector(t, "", "", "app=x", ""),
		selector(t, "", "", "app=x,b=y", ""),
		selector(t, "", "", "", "app=x"),
		selector(t, "", "", "app", "app=x"),
		selector(t, "", "", "", `a=x\,b\=y`),
		selector(t, "", "", "", `a=x,b=y`),
		NewSelector(`n""`, "", nil, nil),
		NewSelector("", "", labels.Nothing(), nil),
		{Namespace: "x"},
		{Namespace: "y"},
		{Name: "x"},
	}
	seen := map[string]int{}
	for i, s := range distinct {
		if j, dup := seen[s.Key()]; dup {
			t.Errorf("%+v and %+v share the key %s", distinct[j], s, s.Key())
		}
		seen[s.Key()] = i
	}
	same := func(a, b Selector) {
		t.Helper()
		if a.Key() != b.Key() {
			t.Errorf("%s and %s differ", a.Key(), b.Key())
		}
	}
	same(Selector{}, NewSelector("", "", nil, nil))
	same(Selector{}, NewSelector("", "", labels.Everything(), fields.Everything()))
	same(Selector{Namespace: "n", Name: "a"}, selector(t, "n", "a", " ", ",,"))
	same(selector(t, "", "", "b=1, a in (y,x)", ""), selector(t, "", "", "a in (x,y),b = 1", ""))
}

func TestSelectorScopeOnly(t *testing.T) {
	f := func(s Selector, want bool) {
		t.Helper()
		if s.ScopeOnly() != want {
			t.Errorf("%s: %v", s.Key(), !want)
		}
	}
	f(Selector{}, true)
	f(selector(t, "n", "a", "", ""), true)
	f(selector(t, "", "", "a", ""), false)
	f(selector(t, "", "", "", "spec.nodeName=x"), false)
	f(NewSelector("", "", labels.Nothing(), nil), false)
}

// Every condition that names its values is a term, and no other.
func TestTerms(t *testing.T) {
	f := func(namespace, name, label, field string, want ...Term) {
		t.Helper()
		got := selector(t, namespace, name, label, field).Terms()
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("got %+v, want %+v", got, want)
		}
	}
	f("", "", "", "")
	f("n", "a", "", "", Term{Name: FieldNamespace, Values: []string{"n"}}, Term{Name: FieldName, Values: []string{"a"}})
	f("", "", "app=x,!b,c,d!=e,f>1,g notin (h)", "spec.nodeName!=x", Term{Label: true, Name: "app", Values: []string{"x"}})
	f("", "", "app in (x,y)", "spec.nodeName=,metadata.name=a", Term{Name: FieldName, Values: []string{"a"}},
		Term{Name: "spec.nodeName", Values: []string{""}}, Term{Label: true, Name: "app", Values: []string{"x", "y"}})
	if got := NewSelector("", "", labels.Nothing(), fields.Nothing()).Terms(); got != nil {
		t.Fatalf("nothing has the terms %+v", got)
	}
}

// Whether a selection by name and namespace alone is seen never changes. The query sent upstream is
// that of the request.
func TestSelectorFixed(t *testing.T) {
	f := func(namespace, name, l, f string, fixed bool, labelQuery, fieldQuery string) {
		t.Helper()
		byLabel, err := labels.Parse(l)
		byField, bad := fields.ParseSelector(f)
		if err != nil || bad != nil {
			t.Fatal(err, bad)
		}
		s := NewSelector(namespace, name, byLabel, byField)
		if s.Fixed() != fixed || s.LabelQuery() != labelQuery || s.FieldQuery() != fieldQuery {
			t.Errorf("%s: fixed %v, %q, %q", s.Key(), s.Fixed(), s.LabelQuery(), s.FieldQuery())
		}
	}
	f("", "", "", "", true, "", "")
	f("n", "", "", "", true, "", "")
	f("n", "x", "", "", true, "", "metadata.name=x")
	f("", "x", "", "metadata.name=x", true, "", "metadata.name=x")
	f("n", "", "", "metadata.namespace=n,metadata.name!=y", true, "", "metadata.name!=y,metadata.namespace=n")
	f("", "x", "", "spec.nodeName=1", false, "", "metadata.name=x,spec.nodeName=1")
	f("", "", "a=b", "", false, "a=b", "")
	f("", "", "a in (b,c),!d", "metadata.name=x", false, "a in (b,c),!d", "metadata.name=x")
}
