package serve

import (
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"spillway/internal/fakeapiserver"
	"spillway/internal/fakeapiserver/rawclient"
	"spillway/internal/flowcontrol"
)

// While upstream is unreachable, a request for a state of any age is answered with the last one and
// its Age; a request for more is refused because upstream is unreachable. While upstream is
// reachable, no answer has an Age.
func TestStaleStatesAreServedWithTheirAge(t *testing.T) {
	eachWay(t, func(t *testing.T, goroutines bool) {
		var age atomic.Int64
		r := newRig(t, rigOptions{
			goroutines: goroutines, stalest: time.Hour, age: func() (time.Duration, bool) {
				return time.Duration(age.Load()), true
			},
		})
		rv := r.up.Create(fakeapiserver.ConfigMaps, "n", "a")
		r.mirrored(configMaps)
		const path = "/api/v1/configmaps"
		object := "/api/v1/namespaces/n/configmaps/a"
		head := func(target string) (int, http.Header) {
			if strings.Contains(target, "watch=1") {
				w := rawclient.Watch(deadline(t), r.url, target)
				defer w.Close()
				code, head, err := w.Head(deadline(t))
				if err != nil {
					t.Fatal(err)
				}
				return code, head
			}
			l := r.list(target)
			return l.Status, l.Header
		}
		shown := []string{
			path + "?resourceVersion=0", object + "?resourceVersion=0", fmt.Sprintf("%s?resourceVersion=%d", path, rv),
			path + "?watch=1&resourceVersion=0", path +
				"?watch=1&resourceVersion=0&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true",
		}
		events := []string{
			fmt.Sprintf("%s?watch=1&resourceVersion=%d", path, rv),
			fmt.Sprintf("%s?resourceVersion=%d&resourceVersionMatch=Exact", path, rv),
		}
		check := func(targets []string, want int, wantAge string) (warnings int) {
			t.Helper()
			for _, target := range targets {
				code, h := head(target)
				if code != want || h.Get("Age") != wantAge {
					t.Errorf("%s: %d, Age %q; want %d, %q", target, code, h.Get("Age"), want, wantAge)
				}
				if strings.Contains(h.Get("Warning"), "last state known") {
					warnings++
				}
			}
			return warnings
		}
		if n := check(append(shown, events...), http.StatusOK, ""); n != 0 {
			t.Errorf("%d warnings while all is well", n)
		}
		r.up.Down()
		age.Store(int64(90*time.Second + 700*time.Millisecond))
		if n := check(shown, http.StatusOK, "90"); n != 1 {
			t.Errorf("%d warnings to one client in a moment", n)
		}
		check(events, http.StatusOK, "")
		check([]string{path, object}, http.StatusServiceUnavailable, "")
		age.Store(int64(time.Hour + 1))
		check(shown, http.StatusServiceUnavailable, "")
		check(events, http.StatusOK, "")
		age.Store(0)
		check(shown, http.StatusOK, "")
	})
}

// A flow is warned once in a while, and made-up ones do not fill memory.
func TestAFlowIsWarnedOnceInAWhile(t *testing.T) {
	var w lastWarnings
	now := time.Now()
	f := func(name string, at time.Duration, want bool) {
		t.Helper()
		if got := w.shouldWarn(flowcontrol.UserFlow(name), now.Add(at)); got != want {
			t.Errorf("%s after %v: %v", name, at, got)
		}
	}
	f("a", 0, true)
	f("b", 0, true)
	f("a", 59*time.Second, false)
	f("a", time.Minute, true)
	f("a", 61*time.Second, false)
	for i := range 2 * warnedFlowsLimit {
		w.shouldWarn(flowcontrol.AddrFlow(netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)})), now)
	}
	if n := len(w.last); n > warnedFlowsLimit {
		t.Errorf("%d flows are remembered", n)
	}
	f("c", 0, false)
	f("c", time.Minute, true)
}

// What is not current though the API server answers is said of the resource, and not of the
// API server.
func TestStaleAnswersFromAnApiserverThatAnswersNameTheResource(t *testing.T) {
	r := newRig(t, rigOptions{stalest: time.Hour, age: func() (time.Duration, bool) { return 3 * time.Second, false }})
	r.up.Create(fakeapiserver.ConfigMaps, "n", "a")
	r.mirrored(configMaps)
	l := r.list("/api/v1/configmaps?resourceVersion=0")
	want := `299 - "the proxy's copy of configmaps is not kept current: this is the last state known, see the header Age"`
	if l.Header.Get("Age") != "3" || l.Header.Get("Warning") != want {
		t.Errorf("Age %q, Warning %q", l.Header.Get("Age"), l.Header.Get("Warning"))
	}
}
