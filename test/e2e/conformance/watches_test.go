package conformance

import (
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"spillway/test/framework/exchange"
)

// testWatches opens watches that end by themselves, while nothing is written to what they watch.
func (s *suite) testWatches(t *testing.T) {
	all := watches()
	for _, e := range []*endpoint{s.plain, s.secure, s.secure2} {
		t.Run(e.Name, func(t *testing.T) {
			t.Parallel()
			s.runAll(t, e, all)
		})
	}
	t.Run("duration", func(t *testing.T) {
		t.Parallel()
		s.testDurations(t)
	})
}

const (
	initial  = "&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"
	noState  = "&sendInitialEvents=false&resourceVersionMatch=NotOlderThan"
	marked   = "&allowWatchBookmarks=true"
	informer = initial + marked
)

// watches are WATCHes by the table of W-100.
func watches() []scenario {
	return over("watch", watchStarts(), watchOptions(), watchFormats(), watchEverything())
}

func watchStarts() []scenario {
	const (
		w    = c1 + "?watch=true&timeoutSeconds=1"
		long = c1 + "?watch=true&timeoutSeconds=7" // long enough for a proof
	)
	return over("start", []scenario{
		get("unset", "W-100 W-101 W-102 W-130", long, memory, 0),
		get("unset, bookmarks", "W-100 W-101 W-110 W-111 W-215", long+marked, memory, 0),
		get("unset and short", "W-100 W-101", w, upstream, 0),
		get("unset and short, bookmarks", "W-100 W-101", w+marked, upstream, 0),
		get("0", "W-100 W-112", w+"&resourceVersion=0", memory, 0),
		get("0, bookmarks", "W-100 W-101 W-110 W-111", w+"&resourceVersion=0"+marked, memory, 0),
		get("N", "W-100 W-103 W-104 W-105", w+"&resourceVersion=${first}", memory, 0),
		get("N, bookmarks", "W-100 W-111", w+"&resourceVersion=${first}"+marked, memory, 0),
		get("another N", "W-100 W-105", w+"&resourceVersion=${mid}", memory, 0),
		get("the last N", "W-100 W-112", w+"&resourceVersion=${last}", memory, 0),
		get("all namespaces from N", "W-100 W-105", allMaps+"?watch=true&timeoutSeconds=1&resourceVersion=${mid}", memory, 0),
		get("all namespaces from 0", "W-61 W-100", allMaps+"?watch=true&timeoutSeconds=1&resourceVersion=0", memory, 0),
		get("too old", "W-2 W-107 W-108 W-177 W-230", w+"&resourceVersion=1", memory, 0),
		get("too old, bookmarks", "W-107", w+"&resourceVersion=1"+marked, memory, 0),
		get("too old custom", "W-107", someWidgets+"?watch=true&timeoutSeconds=1&resourceVersion=1", memory, 0),
		get("too new", "W-106", w+"&resourceVersion=${future}", memory, 0),
		get("too new, bookmarks", "W-106", w+"&resourceVersion=${future}"+marked, memory, 0),
		get("initial", "W-100", long+initial, memory, 0),
		get("initial, bookmarks", "W-100 W-110 W-190 W-215", long+informer, memory, 0),
		get("initial at 0", "W-100", w+initial+"&resourceVersion=0", memory, 0),
		get("initial at 0, bookmarks", "W-100", w+informer+"&resourceVersion=0", memory, 0),
		get("initial at N", "W-100", w+initial+"&resourceVersion=${mid}", memory, 0),
		get("initial at N, bookmarks", "W-100 W-111", w+informer+"&resourceVersion=${mid}", memory, 0),
		get("initial at 1", "W-100", w+informer+"&resourceVersion=1", memory, 0),
		get("initial at the future", "W-106 W-108", w+informer+"&resourceVersion=${future}", memory, 0),
		get("initial at the future, without bookmarks", "W-106", w+initial+"&resourceVersion=${future}", memory, 0),
		get("no state", "W-100", w+noState, memory, 0),
		get("no state, 0", "W-100", w+noState+"&resourceVersion=0", memory, 0),
		get("no state, N", "W-100", w+noState+"&resourceVersion=${mid}", memory, 0),
		get("no state, too old", "W-100 W-107", w+noState+"&resourceVersion=1", memory, 0),
		get("deprecated path", "W-33 W-100", "/api/v1/watch/namespaces/c1/configmaps?timeoutSeconds=1"+marked, memory, 0),
		get("deprecated path from N", "W-33 W-100",
			"/api/v1/watch/namespaces/c1/configmaps?timeoutSeconds=1&resourceVersion=${mid}", memory, 0),
		get("deprecated path of a name", "W-33",
			"/api/v1/watch/namespaces/c1/configmaps/a?timeoutSeconds=1&resourceVersion=0", memory, 0),
		get("deprecated path of a missing name", "W-33", "/api/v1/watch/namespaces/c1/configmaps/zz?timeoutSeconds=1", memory,
			0),
		get("a namespace that does not exist", "W-20 W-100", "/api/v1/namespaces/none/configmaps?watch=1&timeoutSeconds=7"+
			informer, memory, 0),
	})
}

func watchOptions() []scenario {
	const w = c1 + "?resourceVersion=0&timeoutSeconds=1&"
	return over("option", []scenario{
		get("watch=", "W-25", w+"watch=", memory, 0),
		get("watch", "W-25", w+"watch", memory, 0),
		get("watch=no", "W-25", w+"watch=no", memory, 0),
		get("watch=True", "W-25 W-196", w+"watch=True", memory, 0),
		get("bookmarks=false", "W-25", w+"watch=1&allowWatchBookmarks=false", memory, 0),
		get("bookmarks=0", "W-25", w+"watch=1&allowWatchBookmarks=0", memory, 0),
		get("bookmarks=maybe", "W-25", w+"watch=1&allowWatchBookmarks=maybe", memory, 0),
		get("sendInitialEvents=", "W-25", w+"watch=1&sendInitialEvents=&resourceVersionMatch=NotOlderThan", memory, 0),
		get("limit", "W-32", w+"watch=1&limit=1", memory, 0),
		get("limit and continue", "W-32", c1+"?watch=1&resourceVersion=${mid}&timeoutSeconds=1&limit=1&continue=abc", memory,
			0),
		get("continue with defaulted options", "W-32 W-101", w+"watch=1&limit=1&continue=abc", memory, 422),
		get("negative limit", "W-26 W-32", w+"watch=1&limit=-1", memory, 0),
		get("timeout", "W-28", w+"watch=1&timeout=1s", memory, 0),
		get("malformed timeout", "W-28", w+"watch=1&timeout=abc", memory, 0),
		get("negative timeoutSeconds", "W-29", c1+"?watch=1&resourceVersion=0&timeoutSeconds=-1", memory, 0).telling(),
		get("pretty", "W-9", w+"watch=1&pretty=true", memory, 0),
		get("pretty for curl", "W-9", w+"watch=1", memory, 0).with("User-Agent", "curl/8.5.0"),
		get("as informers ask", "W-190",
			w+"allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan&sendInitialEvents=true&timeout=9m4s&watch=true",
			memory, 0),
		get("as client-go falls back", "W-192",
			c1+"?allowWatchBookmarks=true&resourceVersion=${last}&timeout=5m&timeoutSeconds=1&watch=true", memory, 0),
		get("as kubectl watches one", "W-195", w+"fieldSelector=metadata.name%3Da&watch=true", memory, 0),
		get("on an object", "W-34", c1+"/a?watch=1&resourceVersion=0", memory, 0),
		get("label", "W-117", w+"watch=1&labelSelector=app%3Dx", memory, 0),
		get("label, bookmarks", "W-117", w+"watch=1&labelSelector=app%3Dx"+marked, memory, 0),
		get("label in history", "W-103 W-117", c1+"?watch=1&timeoutSeconds=1&resourceVersion=${first}&labelSelector=app%3Dx",
			memory, 0),
		get("field", "W-117", w+"watch=1&fieldSelector=metadata.name%3Da", memory, 0),
		get("a name that is not there", "W-111 W-117", w+"watch=1&fieldSelector=metadata.name%3Dzz"+marked, memory, 0),
		get("another namespace than the path's", "W-117", w+"watch=1&fieldSelector=metadata.namespace%3Dc2", memory, 0),
		get("a namespace by field", "W-117",
			allMaps+"?watch=1&resourceVersion=0&timeoutSeconds=1&fieldSelector=metadata.namespace%3Dc2", memory, 0),
		get("a name everywhere", "W-117",
			allMaps+"?watch=1&resourceVersion=0&timeoutSeconds=1&fieldSelector=metadata.name%3Da", memory, 0),
		get("pods of a node", "W-117 W-196",
			"/api/v1/pods?watch=1&resourceVersion=0&timeoutSeconds=1&fieldSelector=spec.nodeName%3Dn1"+marked, memory, 0),
		get("services with an address", "W-196",
			"/api/v1/services?watch=1&resourceVersion=0&timeoutSeconds=1&fieldSelector=spec.clusterIP%21%3DNone", memory, 0),
	})
}

func watchFormats() []scenario {
	const w = c1 + "?watch=1&timeoutSeconds=1&resourceVersion="
	accept := func(name, rules, target, accept string, from exchange.Source, status int) scenario {
		return get(name, rules, target, from, status).with("Accept", accept)
	}
	return over("format", []scenario{
		accept("json", "W-40 W-41", w+"0", jsonType, memory, 0),
		accept("json with stream=watch", "W-43", w+"0", "application/json;stream=watch", memory, 0),
		accept("yaml", "W-40 W-44", w+"0", yamlType, upstream, 406),
		accept("protobuf", "W-41 W-132", w+"${first}", protobufType, memory, 0),
		accept("protobuf with stream=watch", "W-41", w+"${first}", protobufType+";stream=watch", memory, 0),
		accept("protobuf, too old", "W-107 W-132", w+"1", protobufType, memory, 0),
		accept("protobuf with bookmarks", "W-110 W-132", w+"0"+marked, protobufType, memory, 0),
		accept("partial protobuf with bookmarks", "W-110 W-118 W-132", w+"0"+marked, protobufType+asPartial, memory, 0),
		accept("partial custom", "W-45 W-118", someWidgets+"?watch=1&timeoutSeconds=1&resourceVersion=0"+marked,
			jsonType+asPartial, memory, 0),
		accept("gzip and protobuf, as client-go asks", "W-7 W-132 W-193", c1+"?watch=1&timeoutSeconds=7"+informer,
			protobufType+", */*", memory, 0).with("Accept-Encoding", "gzip"),
		accept("protobuf, then anything", "W-42 W-190 W-193", w+"${first}", protobufType+", */*", memory, 0),
		accept("protobuf, then json", "W-42 W-193", w+"0", protobufType+",application/json", memory, 0),
		accept("protobuf custom", "W-40 W-44", someWidgets+"?watch=1&timeoutSeconds=1", protobufType, upstream, 406),
		accept("partial", "W-45 W-118", w+"${first}", jsonType+asPartial, memory, 0),
		accept("partial with bookmarks", "W-110 W-118", w+"0"+marked, jsonType+asPartial, memory, 0),
		accept("partial, as metadata clients ask", "W-118 W-193", w+"${first}", protobufType+asPartial+","+jsonType+asPartial+
			",application/json", memory, 0),
		accept("table", "W-118", w+"${first}&includeObject=None", jsonType+asTable, upstream, 0).telling(),
		accept("table, bad includeObject", "W-30 W-46", w+"0&includeObject=foo", jsonType+asTable, upstream, 400),
		accept("partial list", "W-118", w+"${first}", jsonType+asPartials, upstream, 0),
		accept("too old, partial", "W-107 W-118", w+"1", jsonType+asPartial, memory, 0),
		accept("xml", "W-44", w+"0", "application/xml", upstream, 406),
		accept("gzip of a plain watch", "W-7 W-255", w+"${first}", jsonType, memory, 0).with("Accept-Encoding", "gzip"),
		accept("gzip of a watch-list", "W-7 W-135", c1+"?watch=1&timeoutSeconds=7"+informer, jsonType, memory, 0).with(
			"Accept-Encoding", "gzip"),
		accept("gzip of a defaulted watch-list", "W-7 W-101", w+"0"+marked, jsonType, memory, 0).with("Accept-Encoding",
			"gzip"),
		accept("gzip of a large watch-list", "W-7", heavy+"?watch=1&timeoutSeconds=7"+informer, jsonType, memory, 0).with(
			"Accept-Encoding", "gzip"),
		accept("gzip of a partial watch-list", "W-7 W-118", w+"0"+informer, jsonType+asPartial, memory, 0).with(
			"Accept-Encoding", "gzip"),
		accept("audit id of one's own", "W-3", w+"0", jsonType, memory, 0).with("Audit-ID", "my-watch"),
		accept("deprecated kind", "W-4", "/api/v1/endpoints?watch=1&timeoutSeconds=1&resourceVersion=0", jsonType, memory, 0),
		accept("beta widgets", "W-4 W-234", betaWidgets+"?watch=1&timeoutSeconds=1&resourceVersion=0", jsonType, upstream, 0),
		accept("never mirrored", "W-107", "/api/v1/events?watch=1&timeoutSeconds=1&resourceVersion=1", jsonType, upstream, 0),
	})
}

// watchEverything watches each mirrored resource as an informer does, in history, and too early.
func watchEverything() []scenario {
	var all []scenario
	for name, path := range collections {
		w := path + "?watch=1&timeoutSeconds=1"
		all = append(all,
			get(name+"/informer", "W-100 W-110 W-190", path+"?watch=1&timeoutSeconds=7"+informer, memory, 0),
			get(name+"/history", "W-100 W-103", w+"&resourceVersion=${last}", memory, 0),
			get(name+"/state", "W-61 W-100", w+"&resourceVersion=0"+marked, memory, 0),
			get(name+"/too old", "W-107", w+"&resourceVersion=1", memory, 0))
	}
	return all
}

// telling says that the answer contains the time, or is a matter of it.
func (c scenario) telling() scenario {
	c.clocked = true
	return c
}

// testDurations checks when watches end, and the bookmarks before that, in every format (W-29,
// W-111, W-112).
func (s *suite) testDurations(t *testing.T) {
	formats := map[string]string{
		"json": jsonType, "protobuf": protobufType, "partial": jsonType + asPartial, "partial protobuf": protobufType +
			asPartial,
	}
	for _, seconds := range []int{1, 2, 3, 4, 5} {
		for _, options := range []string{"&resourceVersion=${first}", "&resourceVersion=${first}" + marked, informer} {
			for name, accept := range formats {
				t.Run(name+" "+strconv.Itoa(seconds)+"s"+options, func(t *testing.T) {
					t.Parallel()
					s.testDuration(t, seconds, options, accept)
				})
			}
		}
	}
}

func (s *suite) testDuration(t *testing.T, seconds int, options, accept string) {
	t.Helper()
	r := request{Target: s.fill(c1 + "?watch=1&timeoutSeconds=" + strconv.Itoa(seconds) + options),
		Header: map[string]string{"Accept": accept}}
	result := s.inTime(t, s.plain, r)
	if result == nil {
		return
	}
	for _, problem := range result.Problems {
		t.Errorf("%s\n%s", r.Target, problem)
	}
	direct := result.Direct
	if direct.Status >= http.StatusBadRequest && result.Newest == nil {
		return // an older API server's refusal
	}
	if result.Newest != nil {
		direct = result.Newest
	}
	for who, a := range map[string]*answer{"direct": direct, "proxied": result.Proxied} {
		if s.skew != nil && who == "direct" {
			continue // without ConsistentListFromCache it sends no bookmarks of a quiet resource
		}
		if least := time.Duration(seconds) * time.Second; a.Took < least-50*time.Millisecond {
			t.Errorf("%s: a watch of %v ended after %v", who, least, a.Took)
		}
		checkBookmarks(t, who, a, seconds, options)
	}
	if !result.FromMemory && (options != informer) {
		t.Error("not answered from memory")
	}
	s.show(t, "W-29 W-110 W-111 W-112 W-236", result.By())
}

// checkBookmarks expects one before the deadline of a watch that lasts longer than two seconds, set
// allowWatchBookmarks, and has received something since it began; and none of shorter ones. After
// initial events there is one at times, if the version moved meanwhile, and what moved it may
// follow.
func checkBookmarks(t *testing.T, who string, a *answer, seconds int, options string) {
	t.Helper()
	events, err := a.Events()
	must(t, err)
	periodic := 0
	for i, e := range events {
		if e.Type != "BOOKMARK" || e.End {
			continue
		}
		if periodic++; i < len(events)-2 && options != informer {
			t.Errorf("%s: a bookmark at %d of %d events", who, i, len(events))
		}
	}
	switch wanted := seconds > 2 && options != informer && strings.Contains(options, marked); {
	case wanted && periodic == 0:
		t.Errorf("%s: no bookmark in %d s", who, seconds)
	case (seconds <= 2 && options != informer || !strings.Contains(options, marked)) && periodic > 0:
		t.Errorf("%s: %d bookmarks in %d s", who, periodic, seconds)
	}
}
