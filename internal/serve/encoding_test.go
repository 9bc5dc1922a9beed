package serve

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"spillway/internal/fakeapiserver"
	"spillway/internal/fakeapiserver/rawclient"
	"spillway/internal/object"
	"spillway/internal/plan"
	"spillway/internal/watch"
)

const (
	partialObject = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
	partialList   = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
)

// TestAnUnencodableEventWithdrawsTheEncoding: an event that cannot be made in a client's encoding
// ends its watch, cleanly and before the event; the encoding is not offered any more, which is
// logged once; all other watches go on (W-235).
func TestAnUnencodableEventWithdrawsTheEncoding(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{mirrors: []*object.Resource{customWidgets}})
	// A state that was taken after the objects were made would have them by name, and the bad one
	// first.
	through := r.catalog[customWidgets.GVR].Resource().CompleteRV()
	path := fmt.Sprintf("%s?watch=1&resourceVersion=%d", customWidgets.Path(), through)
	partial, whole := r.watch(path, rawclient.Header("Accept", partialObject)), r.watch(path)
	fine := r.up.Create(fakeapiserver.Widgets, "n", "fine")
	bad := r.up.Create(fakeapiserver.Widgets, "n", "bad", fakeapiserver.WithField("metadata.unheardOf", 1))
	good := r.up.Create(fakeapiserver.Widgets, "n", "good")

	expect(t, partial, fmt.Sprintf("ADDED n/fine %d", fine))
	over(t, partial, rawclient.Ended)
	if n := len(partial.Events()); n != 1 {
		t.Fatalf("%d events", n)
	}
	expect(t, whole, fmt.Sprintf("ADDED n/fine %d", fine), fmt.Sprintf("ADDED n/bad %d", bad),
		fmt.Sprintf("ADDED n/good %d", good))
	r.ended(customWidgets, watch.EndEncodingFailed, 1)

	again := plan.Request{Method: "GET", Path: customWidgets.Path(), RawQuery: "watch=1&resourceVersion=0",
		Accept: partialObject, Plain: true}
	planned := func() plan.Plan {
		candidate, _ := r.server.planner.Consider(again)
		return r.server.planner.Decide(candidate)
	}
	if planned := planned(); planned.Action != plan.Upstream {
		t.Errorf("the next one: action %v", planned.Action)
	}
	again.Accept = "application/json"
	if planned := planned(); planned.Action != plan.FromCache {
		t.Errorf("what JSON keeps: action %v", planned.Action)
	}
	if n := r.metric("spillway_encoding_failures_total", "encoding=json-metadata",
		"resource=widgets.example.com"); n != 1 {
		t.Errorf("counted %v", n)
	}
	if n := r.logs.FilterMessageSnippet("cannot encode").Len(); n != 1 {
		t.Errorf("%d log lines", n)
	}
}

// TestUnencodableList: a LIST with an item that cannot be made is upstream's from the start.
func TestUnencodableList(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{mirrors: []*object.Resource{customWidgets}})
	r.up.Create(fakeapiserver.Widgets, "n", "a", fakeapiserver.WithField("metadata.unheardOf", 1))
	r.mirrored(customWidgets)
	for range 2 {
		if l := r.list(customWidgets.Path()+"?resourceVersion=0",
			rawclient.Header("Accept", partialList)); l.Status != http.StatusOK || len(l.Items) != 1 {
			t.Errorf("%d %s", l.Status, l.Body)
		}
	}
	if n := r.metric("spillway_encoding_failures_total", "encoding=json-metadata",
		"resource=widgets.example.com"); n != 1 {
		t.Errorf("counted %v: the second request was not upstream's at once", n)
	}
	if n := answeredHere(r); n != 0 {
		t.Errorf("%v answers from memory", n)
	}
}

// TestLargeListsAndObjectsAreCompressed is W-6: lists and objects above 128 KiB are compressed as a
// whole, with a Content-Length, for a client that accepts exactly gzip.
func TestLargeListsAndObjectsAreCompressed(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{mirrors: []*object.Resource{configMaps}})
	r.up.Create(fakeapiserver.ConfigMaps, "n", "large", fakeapiserver.WithPadding(200_000))
	r.up.Create(fakeapiserver.ConfigMaps, "small", "b")
	r.mirrored(configMaps)
	for target, large := range map[string]bool{
		"/api/v1/configmaps?resourceVersion=0":                    true,
		"/api/v1/namespaces/n/configmaps/large?resourceVersion=0": true,
		"/api/v1/namespaces/small/configmaps?resourceVersion=0":   false,
	} {
		plain := r.get(t, target, "identity")
		for coding, takes := range map[string]bool{"gzip": true, "br, gzip": true, "gzip;q=1.0": false, "*": false} {
			got := r.get(t, target, coding)
			compressed := got.header.Get("Content-Encoding") == "gzip"
			if compressed != (large && takes) || compressed != (got.header.Get("Vary") == "Accept-Encoding") {
				t.Errorf("%s for %q: %v", target, coding, got.header)
			}
			if length := got.header.Get("Content-Length"); length != strconv.Itoa(len(got.body)) {
				t.Errorf("%s for %q: %d bytes say that they are %q", target, coding, len(got.body), length)
			}
			if body := got.plain(t); !bytes.Equal(body, plain.body) {
				t.Errorf("%s for %q: another body: %d bytes, want %d", target, coding, len(body), len(plain.body))
			}
		}
	}
}

// raw is an answer as it came.
type raw struct {
	header http.Header
	body   []byte
}

func (r *rig) get(t *testing.T, target, coding string) raw {
	t.Helper()
	request, err := http.NewRequestWithContext(deadline(t), http.MethodGet, r.url+target, nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Accept-Encoding", coding)
	response, err := http.DefaultTransport.RoundTrip(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return raw{response.Header, body}
}

func (a raw) plain(t *testing.T) []byte {
	t.Helper()
	if a.header.Get("Content-Encoding") == "" {
		return a.body
	}
	z, err := gzip.NewReader(bytes.NewReader(a.body))
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	return body
}

// TestOnlyAWatchListIsCompressed is W-7: only a watch-list is compressed. A member can be read as
// soon as it has come.
func TestOnlyAWatchListIsCompressed(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{mirrors: []*object.Resource{configMaps}})
	a := r.up.Create(fakeapiserver.ConfigMaps, "n", "a", fakeapiserver.WithPadding(100_000))
	r.mirrored(configMaps)
	for target, compressed := range map[string]bool{
		"/api/v1/configmaps?watch=1&resourceVersion=0&allowWatchBookmarks=1":      true,
		"/api/v1/configmaps?watch=1&resourceVersion=0":                            false,
		"/api/v1/configmaps?watch=1&resourceVersion=${now}&allowWatchBookmarks=1": false,
		"/api/v1/watch/configmaps?resourceVersion=0&allowWatchBookmarks=1":        false,
	} {
		target = strings.ReplaceAll(target, "${now}", fmt.Sprint(a))
		w := r.watch(target, rawclient.Header("Accept-Encoding", "gzip"))
		_, header, err := w.Head(deadline(t))
		if err != nil || (header.Get("Content-Encoding") == "gzip") != compressed {
			t.Errorf("%s: %v, %v", target, header, err)
		}
		if strings.Contains(target, "resourceVersion=0") {
			expect(t, w, fmt.Sprintf("ADDED n/a %d", a))
		}
		if compressed {
			expect(t, w, fmt.Sprintf("BOOKMARK %d end", r.catalog[configMaps.GVR].Resource().CompleteRV()))
		}
		a = r.up.Update(fakeapiserver.ConfigMaps, "n", "a", fakeapiserver.WithLabel("at", fmt.Sprint(a)))
		expect(t, w, fmt.Sprintf("MODIFIED n/a %d", a))
		r.mirrored(configMaps)
	}
}
