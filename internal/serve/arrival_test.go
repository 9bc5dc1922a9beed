package serve

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"spillway/internal/fakeapiserver"
	"spillway/internal/fakeapiserver/rawclient"
	"spillway/internal/freshness"
	"spillway/internal/object"
	"spillway/internal/source"
	"spillway/internal/watch"
)

// The mirror of a quiet resource learns of a version only by a probe. A request for a version that
// upstream has reached by writes to other resources is answered from memory (W-65, W-95).
func TestArrivalOfAQuietResource(t *testing.T) {
	t.Parallel()
	up := fakeapiserver.New(fakeapiserver.Options{ProofDelay: 10 * time.Millisecond})
	fill(up)
	r := rigOf(t, up, rigOptions{mirrors: []*object.Resource{configMaps}})
	for i, target := range []string{
		mapsPath + "?resourceVersion=%d", mapsPath + "?resourceVersion=%d&resourceVersionMatch=Exact", mapsPath +
			"?resourceVersion=%d&limit=1",
		"/api/v1/namespaces/n/configmaps/c1?resourceVersion=%d", "/api/v1/namespaces/n/configmaps/none?resourceVersion=%d",
	} {
		elsewhere := up.Create(fakeapiserver.Widgets, "n", fmt.Sprint("elsewhere-", i))
		before := answeredHere(r) + r.sum("spillway_rejected_requests_total")
		got, want := r.list(fmt.Sprintf(target, elsewhere)), direct(t, up, fmt.Sprintf(target, elsewhere))
		if got.Status != want.Status || string(got.Body) != string(want.Body) {
			t.Errorf("%s:\ngot  %d %.300s\nwant %d %.300s", target, got.Status, got.Body, want.Status, want.Body)
		}
		if n := answeredHere(r) + r.sum("spillway_rejected_requests_total") - before; n != 1 {
			t.Errorf("%s: not answered here", target)
		}
	}
}

// A version that exists nowhere is waited for as long as upstream waits, and then refused in its
// words (W-65, W-68, W-95).
func TestTooLargeReads(t *testing.T) {
	t.Parallel()
	up := fakeapiserver.New(fakeapiserver.Options{ProofDelay: 10 * time.Millisecond})
	fill(up)
	r := rigOf(t, up, rigOptions{})
	future := up.Revision() + 1000
	for _, target := range []string{
		mapsPath + "?resourceVersion=%d", mapsPath + "?resourceVersion=%d&limit=1",
		"/api/v1/namespaces/n/configmaps/none?resourceVersion=%d",
		"/apis/example.com/v1/widgets?continue=" +
			continueToken(fmt.Sprintf(`{"v":"meta.k8s.io/v1","rv":%d,"start":"/n\u0000"}`, future)),
	} {
		t.Run(target, func(t *testing.T) {
			t.Parallel()
			if strings.Contains(target, "%d") {
				target = fmt.Sprintf(target, future)
			}
			start := time.Now()
			got, err := rawclient.List(deadline(t), r.url, target)
			if err != nil {
				t.Fatal(err)
			}
			if took := time.Since(start); took < source.ArrivalTimeout {
				t.Errorf("refused after %v", took)
			}
			want := direct(t, up, target)
			if got.Status != http.StatusGatewayTimeout || string(got.Body) != string(want.Body) ||
				got.Header.Get("Retry-After") != "1" {
				t.Errorf("got  %d %s %swant %d %s", got.Status, got.Header, got.Body, want.Status, want.Body)
			}
		})
	}
	t.Cleanup(func() {
		if n := r.metric("spillway_rejected_requests_total", "code=504", "resource=configmaps"); n != 3 {
			t.Errorf("%v of 3 requests were refused here", n)
		}
	})
}

// ahead is a prober of an upstream that is far ahead of what can be proven.
type ahead struct{ freshness.Upstream }

func (a ahead) Begin(ctx context.Context) (uint64, freshness.Proof, error) {
	_, proof, err := a.Upstream.Begin(ctx)
	if err != nil {
		return 0, nil, err
	}
	return 1 << 40, neverProven{proof}, nil
}

func (ahead) State(context.Context) (uint64, map[string]uint64, error) {
	return 0, nil, errors.New("not now")
}

type neverProven struct{ freshness.Proof }

func (neverProven) Prove(ctx context.Context, _ uint64) (bookmark, last uint64, err error) {
	<-ctx.Done()
	return 0, 0, ctx.Err()
}

// What did not arrive here but may exist upstream is upstream's to answer: a version is called too
// large only if upstream says that it is (W-68, D1).
func TestBehindUpstream(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{mirrors: []*object.Resource{configMaps},
		prober: func(p freshness.Upstream) freshness.Upstream { return ahead{p} }})
	target := mapsPath + "?resourceVersion=1000000"
	w := r.watch(target + "&watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true")
	got := r.list(target)
	if want := direct(t, r.up, target); got.Status != want.Status || string(got.Body) != string(want.Body) {
		t.Errorf("got  %d %s, want %d %s", got.Status, got.Body, want.Status, want.Body)
	}
	if n := answeredHere(r) + r.sum("spillway_rejected_requests_total"); n != 0 {
		t.Errorf("%v requests were answered here", n)
	}
	if e, err := w.Next(deadline(t)); err != nil || !strings.HasPrefix(e.String(), "ERROR 504") {
		t.Errorf("the watch: %v %v", e, err)
	}
	if n := answeredInStreams(r); n != 0 {
		t.Errorf("%v watches were served here", n)
	}
}

// refusing is a prober that upstream refuses to tell anything.
type refusing struct{ freshness.Upstream }

func (refusing) Begin(context.Context) (uint64, freshness.Proof, error) {
	return 0, nil, apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, "",
		errors.New("the prober may not"))
}

func (refusing) State(context.Context) (uint64, map[string]uint64, error) {
	return 0, nil, errors.New("not now")
}

// Upstream's answer to the proxy's own probe is never the answer to a client: the client's request
// passes through instead (D1).
func TestRefusedQuestionIsNoAnswer(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{mirrors: []*object.Resource{configMaps},
		prober: func(p freshness.Upstream) freshness.Upstream { return refusing{p} }})
	for _, target := range []string{mapsPath, "/api/v1/namespaces/n/configmaps/none"} {
		target += "?resourceVersion=1000000"
		got, want := r.list(target), direct(t, r.up, target)
		if got.Status != want.Status || string(got.Body) != string(want.Body) {
			t.Errorf("got  %d %s, want %d %s", got.Status, got.Body, want.Status, want.Body)
		}
	}
	if n := answeredHere(r) + r.sum("spillway_rejected_requests_total"); n != 0 {
		t.Errorf("%v requests were answered here", n)
	}
}

// A watch from now without state shows what is written once its client has the head of the answer,
// and nothing that was written before it asked, whenever the mirror hears of the two (W-100).
func TestEventsFromNewest(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{mirrors: []*object.Resource{configMaps}})
	r.up.HoldWatch(fakeapiserver.ConfigMaps)
	r.up.Create(fakeapiserver.ConfigMaps, "n", "before")
	w := r.watch(mapsPath + "?watch=1&sendInitialEvents=false&resourceVersionMatch=NotOlderThan")
	rv := r.up.Create(fakeapiserver.ConfigMaps, "n", "after")
	r.up.ReleaseWatch(fakeapiserver.ConfigMaps)
	expect(t, w, fmt.Sprintf("ADDED n/after %d", rv))
	if n := r.metric("spillway_watches", "resource=configmaps"); n != 1 {
		t.Errorf("%v watches are served here", n)
	}
}

// A watch that is over before it begins has a head and an end, and its connection goes on (W-2,
// W-29).
func TestOverBeforeItBegins(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{mirrors: []*object.Resource{configMaps}})
	r.up.Create(fakeapiserver.ConfigMaps, "n", "a")
	r.mirrored(configMaps)
	for _, query := range []string{"&resourceVersion=0", "&resourceVersion=1", "&resourceVersion=1000000"} {
		w := r.watch(mapsPath + "?watch=1&timeoutSeconds=-1" + query)
		over(t, w, rawclient.Ended)
	}
	r.ended(configMaps, watch.EndTimeout, 3)
}

// Only a watch that asked for its initial events, or was given them by default, has a mark at their
// end (W-33, W-101).
func TestOnlyAWatchWithInitialEventsHasTheirEndMark(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{mirrors: []*object.Resource{configMaps}})
	rv := r.up.Create(fakeapiserver.ConfigMaps, "n", "a")
	r.mirrored(configMaps)
	for _, target := range []string{
		"/api/v1/watch/configmaps?allowWatchBookmarks=true",
		"/api/v1/watch/configmaps?allowWatchBookmarks=true&resourceVersion=0",
		mapsPath + "?watch=1&allowWatchBookmarks=true&resourceVersion=00",
	} {
		w := r.watch(target)
		expect(t, w, fmt.Sprintf("ADDED n/a %d", rv))
		next := r.up.Update(fakeapiserver.ConfigMaps, "n", "a", fakeapiserver.WithData("k", target))
		expect(t, w, fmt.Sprintf("MODIFIED n/a %d", next))
		w.Close()
		rv = next
	}
}
