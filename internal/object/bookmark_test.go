package object

import "testing"

const endAnnotation = `"k8s.io/initial-events-end":"true"`

// Our bookmarks are upstream's with another resourceVersion (W-110, Annex A of docs/protocol.md).
func TestBookmarkFromUpstream(t *testing.T) {
	f := func(r *Resource, upstream, want, wantEnd string) {
		t.Helper()
		b, err := BookmarkFrom(r, []byte(upstream))
		if err != nil {
			t.Fatalf("%s: %v", upstream, err)
		}
		checkBookmark(t, b, want, wantEnd)
	}
	configMaps := builtin("", "configmaps", "ConfigMap", true)
	f(configMaps,
		`{"kind":"ConfigMap","apiVersion":"v1","metadata":{"resourceVersion":"325"}}`,
		`{"kind":"ConfigMap","apiVersion":"v1","metadata":{"resourceVersion":"1045"}}`,
		`{"kind":"ConfigMap","apiVersion":"v1","metadata":{"resourceVersion":"1045","annotations":{`+endAnnotation+`}}}`)
	// The end of upstream's initial events is not the end of ours.
	f(configMaps,
		`{"kind":"ConfigMap","apiVersion":"v1","metadata":{"resourceVersion":"322","annotations":{`+endAnnotation+`}}}`+"\n",
		`{"kind":"ConfigMap","apiVersion":"v1","metadata":{"resourceVersion":"1045"}}`,
		`{"kind":"ConfigMap","apiVersion":"v1","metadata":{"resourceVersion":"1045","annotations":{`+endAnnotation+`}}}`)
	// 1.32 sends an empty list with it, in the encoding of that one watch-list.
	f(configMaps,
		`{"kind":"ConfigMap","apiVersion":"v1","metadata":{"resourceVersion":"322","annotations":{`+endAnnotation+
			`,"kubernetes.io/initial-events-list-blueprint":"e30="}}}`,
		`{"kind":"ConfigMap","apiVersion":"v1","metadata":{"resourceVersion":"1045"}}`,
		`{"kind":"ConfigMap","apiVersion":"v1","metadata":{"resourceVersion":"1045","annotations":{`+endAnnotation+`}}}`)
	f(pods,
		`{"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":"448"},"spec":{"containers":null},"status":{}}`,
		`{"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":"1045"},"spec":{"containers":null},"status":{}}`,
		`{"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":"1045","annotations":{`+endAnnotation+
			`}},"spec":{"containers":null},"status":{}}`)
	// Members called metadata further down are the object's own business.
	f(builtin("", "podtemplates", "PodTemplate", true),
		`{"kind":"PodTemplate","apiVersion":"v1","metadata":{"resourceVersion":"1"},"template":{"metadata":{},"spec":`+
			`{"containers":null}}}`,
		`{"kind":"PodTemplate","apiVersion":"v1","metadata":{"resourceVersion":"1045"},"template":{"metadata":{},"spec":`+
			`{"containers":null}}}`,
		`{"kind":"PodTemplate","apiVersion":"v1","metadata":{"resourceVersion":"1045","annotations":{`+endAnnotation+
			`}},"template":{"metadata":{},"spec":{"containers":null}}}`)
	const daemonSetTail = `,"spec":{"selector":null,"template":{"metadata":{},"spec":{"containers":null}},` +
		`"updateStrategy":{}},` +
		`"status":{"currentNumberScheduled":0,"numberMisscheduled":0,"desiredNumberScheduled":0,"numberReady":0}}`
	f(builtin("apps", "daemonsets", "DaemonSet", true),
		`{"kind":"DaemonSet","apiVersion":"apps/v1","metadata":{"resourceVersion":"5","annotations":`+
			`{"deprecated.daemonset.template.generation":"0"}}`+daemonSetTail,
		`{"kind":"DaemonSet","apiVersion":"apps/v1","metadata":{"resourceVersion":"1045","annotations":`+
			`{"deprecated.daemonset.template.generation":"0"}}`+daemonSetTail,
		`{"kind":"DaemonSet","apiVersion":"apps/v1","metadata":{"resourceVersion":"1045","annotations":`+
			`{"deprecated.daemonset.template.generation":"0",`+endAnnotation+`}}`+daemonSetTail)
	f(widgets,
		`{"apiVersion":"wire.example/v1","kind":"Widget","metadata":{"resourceVersion":"5"}}`,
		`{"apiVersion":"wire.example/v1","kind":"Widget","metadata":{"resourceVersion":"1045"}}`,
		`{"apiVersion":"wire.example/v1","kind":"Widget","metadata":{"annotations":{`+endAnnotation+
			`},"resourceVersion":"1045"}}`)
	f(widgets,
		`{"apiVersion":"wire.example/v1","kind":"Widget","metadata":{"annotations":{`+endAnnotation+
			`},"resourceVersion":"5"}}`,
		`{"apiVersion":"wire.example/v1","kind":"Widget","metadata":{"resourceVersion":"1045"}}`,
		`{"apiVersion":"wire.example/v1","kind":"Widget","metadata":{"annotations":{`+endAnnotation+
			`},"resourceVersion":"1045"}}`)
	// Apiservers before 1.35 print the zero creationTimestamp, in its place among the members of
	// metadata.
	f(pods,
		`{"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":"448","creationTimestamp":null,"annotations":{`+
			endAnnotation+`}},"spec":{"containers":null},"status":{}}`,
		`{"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":"1045","creationTimestamp":null},"spec":`+
			`{"containers":null},"status":{}}`,
		`{"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":"1045","creationTimestamp":null,"annotations":{`+
			endAnnotation+`}},"spec":{"containers":null},"status":{}}`)
	f(widgets,
		`{"apiVersion":"wire.example/v1","kind":"Widget","metadata":{"creationTimestamp":null,"resourceVersion":"5"}}`,
		`{"apiVersion":"wire.example/v1","kind":"Widget","metadata":{"creationTimestamp":null,"resourceVersion":"1045"}}`,
		`{"apiVersion":"wire.example/v1","kind":"Widget","metadata":{"annotations":{`+endAnnotation+
			`},"creationTimestamp":null,"resourceVersion":"1045"}}`)
}

// Until upstream has sent one, a bookmark is the bare type.
func TestBookmarkWithoutUpstream(t *testing.T) {
	checkBookmark(t, NewBookmark(deployments),
		`{"kind":"Deployment","apiVersion":"apps/v1","metadata":{"resourceVersion":"1045"}}`,
		`{"kind":"Deployment","apiVersion":"apps/v1","metadata":{"resourceVersion":"1045","annotations":{`+endAnnotation+
			`}}}`)
	checkBookmark(t, NewBookmark(gadgets),
		`{"apiVersion":"wire.example/v1","kind":"Gadget","metadata":{"resourceVersion":"1045"}}`,
		`{"apiVersion":"wire.example/v1","kind":"Gadget","metadata":{"annotations":{`+endAnnotation+
			`},"resourceVersion":"1045"}}`)
}

func checkBookmark(t *testing.T, b *Bookmark, want, wantEnd string) {
	t.Helper()
	for range 2 { // a template is not used up
		if got := string(b.Append([]byte("x"), 1045, false)); got != "x"+want {
			t.Errorf("got  %s\nwant x%s", got, want)
		}
		if got := string(b.Append(nil, 1045, true)); got != wantEnd {
			t.Errorf("got  %s\nwant %s", got, wantEnd)
		}
	}
}

func TestBookmarkRefuses(t *testing.T) {
	for _, raw := range []string{
		"", "null", "{}", "[]", `{"metadata":5}`, `{"metadata":null}`, `{"metadata":[]}`,
		`{"metadata":{"resourceVersion":"1"}`,
		`{"metadata":{"resourceVersion":"1"}} {}`, `{"metadata":{"annotations":{"a":5}}}`, `{"metadata":{"annotations":5}}`,
	} {
		if b, err := BookmarkFrom(pods, []byte(raw)); err == nil {
			t.Errorf("%q was accepted: %s", raw, b.Append(nil, 1, true))
		}
	}
}
