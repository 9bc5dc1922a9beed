package serve

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"spillway/internal/codec"
	"spillway/internal/plan"
	"spillway/internal/source"
	"spillway/internal/source/sourcetest"
)

// listed is the body that a LIST of a source is answered with, as it goes out.
func listed(t *testing.T, source *source.Source, target string) (string, plan.Plan) {
	t.Helper()
	path, query, _ := strings.Cut(target, "?")
	planner := plan.Planner{Catalog: sourcetest.Resources{source.Resource().Info.GVR: source}}
	candidate, _ := planner.Consider(plan.Request{Method: "GET", Path: path, RawQuery: query, Plain: true})
	plan := planner.Decide(candidate)
	if plan.List == nil {
		t.Fatalf("%s: action %v", target, plan.Action)
	}
	snapshot, err := (&request{server: &Server{}, plan: plan}).chooseSnapshot()
	if err != nil {
		t.Fatalf("%s: %v", target, err)
	}
	items, meta := collect(plan, snapshot)
	body, err := codec.NewList(plan.Encoding, source.Resource().Info, items, meta)
	if err != nil {
		t.Fatal(err)
	}
	size := body.Size()
	var b bytes.Buffer
	n, err := body.WriteTo(&b)
	if err != nil || int(n) != size || b.Len() != size {
		t.Fatalf("%s: promised %d bytes, wrote %d, said %d: %v", target, size, b.Len(), n, err)
	}
	return b.String(), plan
}

// page is what a client reads in a list.
type page struct {
	Metadata struct {
		ResourceVersion, Continue string
		RemainingItemCount        *int
	}
	Items []struct {
		Kind     string
		Metadata struct{ Namespace, Name string }
	}
}

func pageOf(t *testing.T, body string) (page, []string) {
	t.Helper()
	var p page
	if err := json.Unmarshal([]byte(body), &p); err != nil {
		t.Fatalf("%v in %s", err, body)
	}
	var keys []string
	for _, i := range p.Items {
		keys = append(keys, i.Metadata.Namespace+"/"+i.Metadata.Name)
	}
	return p, keys
}

// TestAListHasTheBytesOfTheAPIServer is W-60 byte by byte.
func TestAListHasTheBytesOfTheAPIServer(t *testing.T) {
	pods := sourcetest.New(t, sourcetest.Pods, sourcetest.Unreachable{}, 100, "c1/a 5", "c1/b 6 app=x", "c2/c 7")
	custom := sourcetest.New(t, sourcetest.Widgets, sourcetest.Unreachable{}, 100, "c1/a 5")
	empty := sourcetest.New(t, sourcetest.Pods, sourcetest.Unreachable{}, 100)
	emptyCustom := sourcetest.New(t, sourcetest.Widgets, sourcetest.Unreachable{}, 100)
	const (
		itemA = `{"metadata":{"name":"a","namespace":"c1","uid":"uid-c1/a","resourceVersion":"5"}}`
		itemB = `{"metadata":{"name":"b","namespace":"c1","uid":"uid-c1/b","resourceVersion":"6","labels":{"app":"x"}}}`
		itemC = `{"metadata":{"name":"c","namespace":"c2","uid":"uid-c2/c","resourceVersion":"7"}}`
	)
	afterA, afterB := continueToken(`{"v":"meta.k8s.io/v1","rv":100,"start":"/c1/a\u0000"}`),
		continueToken(`{"v":"meta.k8s.io/v1","rv":100,"start":"/c1/b\u0000"}`)
	inC1 := continueToken(`{"v":"meta.k8s.io/v1","rv":100,"start":"/a\u0000"}`)
	for _, c := range []struct {
		rule, target string
		source       *source.Source
		want         string
	}{
		{"W-60 all", "/api/v1/pods?resourceVersion=0", pods,
			`{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"100"},"items":[` + itemA + "," + itemB + "," +
				itemC + "]}\n"},
		{"W-60 empty", "/api/v1/pods?resourceVersion=0", empty,
			`{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"100"},"items":[]}` + "\n"},
		{"W-20 no such namespace", "/api/v1/namespaces/nope/pods?resourceVersion=0", pods,
			`{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"100"},"items":[]}` + "\n"},
		{"W-60 custom", "/apis/example.com/v1/widgets?resourceVersion=0", custom,
			`{"apiVersion":"example.com/v1","items":[{"apiVersion":"example.com/v1","kind":"Widget",` + itemA[1:] +
				`],"kind":"WidgetList","metadata":{"continue":"","resourceVersion":"100"}}` + "\n"},
		{"W-60 empty custom", "/apis/example.com/v1/widgets?resourceVersion=0", emptyCustom,
			`{"apiVersion":"example.com/v1","items":[],"kind":"WidgetList","metadata":{"continue":"","resourceVersion":"100"}}` +
				"\n"},
		{"W-63 any has no limit", "/api/v1/pods?resourceVersion=0&limit=1", pods,
			`{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"100"},"items":[` + itemA + "," + itemB + "," +
				itemC + "]}\n"},
		{"W-69, W-70", "/api/v1/pods?resourceVersion=100&limit=1", pods,
			`{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"100","continue":"` + afterA +
				`","remainingItemCount":2},"items":[` + itemA + "]}\n"},
		{"W-70 from this page on", "/api/v1/pods?limit=1&continue=" + afterA, pods,
			`{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"100","continue":"` + afterB +
				`","remainingItemCount":1},"items":[` + itemB + "]}\n"},
		{"W-69 the last page", "/api/v1/pods?limit=1&continue=" + afterB, pods,
			`{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"100"},"items":[` + itemC + "]}\n"},
		{"W-81 the rest in one", "/api/v1/pods?continue=" + afterA, pods,
			`{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"100"},"items":[` + itemB + "," + itemC + "]}\n"},
		{"W-80 relative to the namespace", "/api/v1/namespaces/c1/pods?resourceVersion=100&limit=1", pods,
			`{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"100","continue":"` + inC1 +
				`","remainingItemCount":1},"items":[` + itemA + "]}\n"},
		{"W-70 none with a selector", "/api/v1/pods?resourceVersion=100&limit=1&labelSelector=app%3Dx", pods,
			`{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"100","continue":"` + afterB + `"},"items":[` +
				itemB + "]}\n"},
		{"W-69 one key is the range",
			"/api/v1/namespaces/c1/pods?resourceVersion=100&limit=1&fieldSelector=metadata.name%3Da", pods,
			`{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"100"},"items":[` + itemA + "]}\n"},
		{"W-35 two names", "/api/v1/pods?resourceVersion=0&fieldSelector=metadata.name%3Da,metadata.name%3Db", pods,
			`{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"100"},"items":[]}` + "\n"},
		{"W-69 limit is the number of items", "/api/v1/pods?resourceVersion=100&limit=3", pods,
			`{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"100"},"items":[` + itemA + "," + itemB + "," +
				itemC + "]}\n"},
	} {
		if got, _ := listed(t, c.source, c.target); got != c.want {
			t.Errorf("%s: %s:\ngot  %swant %s", c.rule, c.target, got, c.want)
		}
	}
}

// TestAListIsOrderedByNamespaceAndName: bytewise by namespace + "/" + name, which is not the order
// of the pairs (W-61); on one page or on many.
func TestAListIsOrderedByNamespaceAndName(t *testing.T) {
	want := []string{"o-x/z", "o/k", "o/k-1", "o/k.1", "o/k0", "o/z", "o0x/z", "o1/z"}
	var objects []string
	for i, key := range want {
		objects = append(objects, fmt.Sprintf("%s %d", key, i+1))
	}
	rand.Shuffle(len(objects), func(i, j int) { objects[i], objects[j] = objects[j], objects[i] })
	source := sourcetest.New(t, sourcetest.Pods, sourcetest.Unreachable{}, 100, objects...)
	for limit := 1; limit <= len(want)+1; limit++ {
		target := fmt.Sprintf("/api/v1/pods?resourceVersion=100&limit=%d", limit)
		var got []string
		for {
			body, _ := listed(t, source, target)
			p, keys := pageOf(t, body)
			got = append(got, keys...)
			if r := p.Metadata.RemainingItemCount; r != nil && *r != len(want)-len(got) {
				t.Errorf("limit %d: %d remain after %q", limit, *r, got)
			}
			if p.Metadata.Continue == "" {
				break
			}
			target = fmt.Sprintf("/api/v1/pods?limit=%d&continue=%s", limit, p.Metadata.Continue)
		}
		if !slices.Equal(got, want) {
			t.Errorf("limit %d:\ngot  %q\nwant %q", limit, got, want)
		}
	}
}

// Pages after the first show the state of the first, whatever happened since (W-63).
func TestListPagesOfOneState(t *testing.T) {
	source := sourcetest.New(t, sourcetest.Pods, sourcetest.Unreachable{}, 100, "a/a 1", "a/b 2", "a/c 3", "a/d 4")
	body, _ := listed(t, source, "/api/v1/namespaces/a/pods?resourceVersion=100&limit=1")
	first, _ := pageOf(t, body)
	r := source.Resource()
	for _, err := range []error{
		r.Delete(sourcetest.ParseOne(t, sourcetest.Pods, "a/b 101")),
		r.Add(sourcetest.ParseOne(t, sourcetest.Pods, "a/bb 102")),
		r.Update(sourcetest.ParseOne(t, sourcetest.Pods, "a/c 103")),
		r.Replace(sourcetest.Parse(t, sourcetest.Pods, "a/a 1", "a/bb 102", "a/c 103", "a/e 110"), 120),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	body, _ = listed(t, source, "/api/v1/namespaces/a/pods?continue="+first.Metadata.Continue)
	p, keys := pageOf(t, body)
	if want := []string{"a/b", "a/c", "a/d"}; !slices.Equal(keys, want) || p.Metadata.ResourceVersion != "100" ||
		!strings.Contains(body, `"resourceVersion":"3"`) {
		t.Errorf("got %q at %s, want %q at 100: %s", keys, p.Metadata.ResourceVersion, want, body)
	}
}

// A token is the client's word: whatever it says, a list never leaves the scope of its request
// (W-81, W-82, D4).
func TestTokensCannotWidenScope(t *testing.T) {
	source := sourcetest.New(t, sourcetest.Pods, sourcetest.Unreachable{}, 100, "a/x 1", "b/w 2", "b/x 3", "b/y 4",
		"b0/x 5", "b-/x 6", "c/x 7")
	starts := []string{"/", "a", "/a", "/a/x", "b/", "b/x", "/c/x\x00", "\x00", "/\x00", "~", "/\xff", "x\x00",
		"w/../../c", "../c/x", "./x", "%2e%2e/c", "\uffff", "b0/x", "-/x"}
	planner := plan.Planner{Catalog: sourcetest.Resources{sourcetest.Pods.GVR: source}}
	check := func(start string) {
		text, err := json.Marshal(map[string]any{"v": "meta.k8s.io/v1", "rv": 100, "start": start})
		if err != nil {
			t.Fatal(err)
		}
		for _, more := range []string{"", "&limit=1", "&fieldSelector=metadata.name%3Dx"} {
			candidate, _ := planner.Consider(plan.Request{Method: "GET", Path: "/api/v1/namespaces/b/pods",
				RawQuery: "continue=" + continueToken(string(text)) + more, Plain: true})
			plan := planner.Decide(candidate)
			if plan.List == nil {
				continue
			}
			snapshot, err := source.Resource().SnapshotAt(plan.List.RV)
			if err != nil {
				t.Fatal(err)
			}
			items, _ := collect(plan, snapshot)
			for _, o := range items {
				if o.Namespace() != "b" {
					t.Errorf("start %q: shows %s", start, o.Key)
				}
			}
		}
	}
	for _, start := range starts {
		check(start)
	}
	letters := []byte("ab/.x-0\x00~")
	for range 2000 {
		random := make([]byte, 1+rand.IntN(8))
		for i := range random {
			random[i] = letters[rand.IntN(len(letters))]
		}
		check(string(random))
	}
}
