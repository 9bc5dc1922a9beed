package object

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
)

// randomSelector is a label selector of few names and values, so that conditions of one name meet.
func randomSelector(r *rand.Rand, terms int) string {
	name := func() string { return fmt.Sprint("k", r.IntN(6)) }
	value := func() string { return fmt.Sprint(r.IntN(8)) }
	var all []string
	for range terms {
		switch n := name(); r.IntN(9) {
		case 0:
			all = append(all, n)
		case 1:
			all = append(all, "!"+n)
		case 2:
			all = append(all, n+"="+value())
		case 3:
			all = append(all, n+" in ("+value()+","+value()+","+value()+")")
		case 4:
			all = append(all, n+" notin ("+value()+","+value()+")")
		case 5:
			all = append(all, n+">"+value())
		case 6:
			all = append(all, n+"<"+value())
		default:
			all = append(all, n+"!="+value())
		}
	}
	return strings.Join(all, ",")
}

// Conditions match what apimachinery's requirements match, whichever way is shorter, and whatever
// the order of an object's labels.
func TestConditionsMatchAsRequirementsDo(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	matched := 0
	for range 20_000 {
		query := randomSelector(r, r.IntN(7))
		want, err := labels.Parse(query)
		if err != nil {
			t.Fatalf("%s: %v", query, err)
		}
		var pairs []string
		for range r.IntN(12) {
			pairs = append(pairs, fmt.Sprintf(`"k%d":"%d"`, r.IntN(8), r.IntN(8)))
		}
		o := mustParse(t, pods, `{"metadata":{"name":"a","namespace":"n","resourceVersion":"7","labels":{`+
			strings.Join(pairs, ",")+`}}}`)
		s := NewSelector("", "", want, nil)
		if got := s.Matches(o); got != want.Matches(labelsOf(o)) {
			t.Fatalf("%q of %v (unordered: %t): %t", query, labelsOf(o), o.isUnordered, got)
		} else if got {
			matched++
		}
		if s.LabelQuery() != want.String() {
			t.Fatalf("%q prints itself as %q, want %q", query, s.LabelQuery(), want)
		}
	}
	if matched < 500 {
		t.Errorf("%d selectors matched: too few to tell", matched)
	}
}

// many is a selector of n terms with different names.
func many(t testing.TB, n int, term string) Selector {
	t.Helper()
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf(term, i)
	}
	return selector(t, "n", "", strings.Join(all, ","), "")
}

// However many terms there are of one name, an object is compared with one condition of each kind.
func TestConditionsOfOneNameAreMerged(t *testing.T) {
	s := many(t, 1000, "k!=v%d")
	if n := len(s.labels.all); n != 1 {
		t.Errorf("%d conditions", n)
	}
	for value, want := range map[string]bool{"v0": false, "v999": false, "v1000": true, "": true} {
		o := mustParse(t, pods, `{"metadata":{"name":"a","namespace":"n","resourceVersion":"7","labels":{"k":"`+value+`"}}}`)
		if s.Matches(o) != want {
			t.Errorf("%q: %t", value, !want)
		}
	}
}

// A selector weighs what there is of it: names, and the values of sets, or else its length.
func TestWeight(t *testing.T) {
	f := func(l, fs string, want int) {
		t.Helper()
		if got := selector(t, "n", "a", l, fs).Weight(); got != want {
			t.Errorf("%.40q, %q weighs %d, want %d", l, fs, got, want)
		}
	}
	f("", "", 0)
	f("a", "", 1)
	f("!a,b=c,d!=e", "spec.nodeName=x", 4)
	f("a in (b,c,d),e notin (f,g)", "", 5)
	f(strings.Repeat("a", 60)+"/"+strings.Repeat("b", 60), "", 3)
	f("", "metadata.name!="+strings.Repeat("x", 320), 10)
	if s := many(t, LightWeightLimit, "k%d!=v"); !s.Light() {
		t.Errorf("%d terms are not light", LightWeightLimit)
	}
	if s := many(t, LightWeightLimit+1, "k%d!=v"); s.Light() {
		t.Errorf("%d terms are light", LightWeightLimit+1)
	}
	if s := many(t, 64, "k%d!="+strings.Repeat("v", 63)); !s.Light() {
		t.Errorf("%d bytes are not light", len(s.LabelQuery()))
	}
	if s := many(t, 130, "k%d!="+strings.Repeat("v", 63)); s.Light() {
		t.Errorf("%d bytes are light", len(s.LabelQuery()))
	}
}

func TestSelectorSingle(t *testing.T) {
	f := func(l, fs string, want bool) {
		t.Helper()
		if selector(t, "n", "", l, fs).Single() != want {
			t.Errorf("%q, %q: %t", l, fs, !want)
		}
	}
	f("", "", false)
	f("a=b", "", true)
	f("a in (b)", "", true)
	f("", "metadata.name=x", true)
	f("a in (b,c)", "", false)
	f("a=b,c!=d", "", false)
	f("a!=b", "", false)
	f("a", "", false)
	f("a=b", "metadata.name=x", false)
}

// The selector of the report, 60,000 terms, took 14 MB; the key of a long one is short.
func TestSelectorIsSmall(t *testing.T) {
	const terms = 60_000
	var query strings.Builder
	for i := range terms {
		fmt.Fprintf(&query, "k%05d!=v,", i)
	}
	parsed, err := labels.Parse(strings.TrimSuffix(query.String(), ","))
	if err != nil {
		t.Fatal(err)
	}
	s := NewSelector("n", "", parsed, nil)
	if size := s.Size(); size > 2_400_000 || size < len(s.LabelQuery()) {
		t.Errorf("%d bytes", size)
	}
	if n := len(s.Key()); n > 100 {
		t.Errorf("a key of %d bytes", n)
	}
	var with, without runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&with)
	size := s.Size()
	s = Selector{}
	runtime.GC()
	runtime.ReadMemStats(&without)
	if freed := int(with.HeapAlloc) - int(without.HeapAlloc); freed > size*5/4 { // #nosec G115 -- some megabytes
		t.Errorf("it held %d bytes, and says %d", freed, size)
	}
}

// BenchmarkMatches is what one question costs: hardly more for 60,000 terms than for one.
func BenchmarkMatches(b *testing.B) {
	object := func(labels int) *Object {
		var all []string
		for i := range labels {
			all = append(all, fmt.Sprintf(`"l%05d":"v"`, i))
		}
		return mustParse(b, pods, `{"metadata":{"name":"a","namespace":"n","resourceVersion":"7","labels":{`+
			strings.Join(all, ",")+`}}}`)
	}
	for _, labelled := range []int{5, 10_000} {
		o := object(labelled)
		for _, terms := range []int{1, LightWeightLimit, 60_000} {
			s := many(b, terms, "k%05d!=v")
			b.Run(fmt.Sprintf("labels=%d/terms=%d", labelled, terms), func(b *testing.B) {
				for b.Loop() {
					if !s.Matches(o) {
						b.Fatal("it does not match")
					}
				}
			})
		}
	}
}

// Fields are merged like labels, and a value that has to be escaped is compared as it is meant.
func TestFieldConditions(t *testing.T) {
	f := func(query string, want bool) {
		t.Helper()
		parsed, err := fields.ParseSelector(query)
		if err != nil {
			t.Fatal(err)
		}
		o := mustParse(t, pods, `{"metadata":{"name":"a","namespace":"n","resourceVersion":"7"},"spec":{"nodeName":"x,y=z"}}`)
		s := NewSelector("", "", nil, parsed)
		if s.Matches(o) != want || parsed.Matches(o.Fields()) != want {
			t.Errorf("%s: %t", query, !want)
		}
		if s.FieldQuery() != parsed.String() {
			t.Errorf("%s prints itself as %s", query, s.FieldQuery())
		}
	}
	f(`spec.nodeName=x\,y\=z`, true)
	f(`spec.nodeName=x\,y\=z,metadata.name!=b`, true)
	f(`spec.nodeName=x\,y\=z,spec.nodeName=x`, false)
	f(`spec.nodeName!=x,spec.nodeName!=y,spec.nodeName!=z`, true)
	f(`spec.nodeName!=x,spec.nodeName!=x\,y\=z`, false)
	f("metadata.name=a,metadata.name=a", true)
	f("metadata.name=a,metadata.name=b", false)
	if NewSelector("", "", nil, fields.Nothing()).Matches(mustParse(t, pods,
		`{"metadata":{"name":"a","namespace":"n","resourceVersion":"7"}}`)) {
		t.Error("fields.Nothing matches")
	}
}
