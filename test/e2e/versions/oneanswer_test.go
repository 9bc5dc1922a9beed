package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"spillway/test/framework/controlplane"
	"spillway/test/framework/exchange"
	"spillway/test/framework/process"
)

func TestMain(m *testing.M) {
	flag.Parse()
	// Requests wait, above all, so the number of tests at a time is not a matter of processors.
	if err := flag.Set("test.parallel", "32"); err != nil {
		panic(err) // the flag exists
	}
	os.Exit(m.Run())
}

// times is how often each request is sent, some at the same time.
const times, atOnce = 50, 10

// TestOneAnswer sends requests that older API servers answer in other ways, or refuse, again and
// again while nothing is written: all answers to one request are the same, whether they come from
// memory or from upstream.
func TestOneAnswer(t *testing.T) {
	cp, err := controlplane.Start(t.Context(), controlplane.Options{Log: t.Output()})
	must(t, err)
	t.Cleanup(cp.Stop)
	client, err := kubernetes.NewForConfig(cp.Config(controlplane.Admin))
	must(t, err)
	var version string
	for i := range 5 {
		made, err := client.CoreV1().ConfigMaps("default").Create(t.Context(), &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("object-", i), Labels: map[string]string{"app": "x"}}},
			metav1.CreateOptions{})
		must(t, err)
		version = made.ResourceVersion
	}
	proxy := process.StartProxy(t, process.BuildProxy(t), "--kubeconfig="+cp.Kubeconfig(controlplane.Admin),
		"--listen-identity=self", "--resources=configmaps")
	e := exchange.NewEndpoint("proxy", proxy.Plain, &rest.Config{Host: proxy.Plain})
	const list = "/api/v1/namespaces/default/configmaps?"
	const initial = "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
	const partial = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
	for _, c := range []struct {
		query, accept string
		seconds       []int // of timeoutSeconds, whichever has no influence
	}{
		{query: initial, seconds: []int{2, 4, 7}},
		{query: initial + "&resourceVersion=0", seconds: []int{1, 5}},
		{query: initial + "&resourceVersion=" + version, seconds: []int{1, 5}},
		{query: initial, accept: partial, seconds: []int{2, 4, 7}},
		{query: "watch=1&sendInitialEvents=false&resourceVersionMatch=NotOlderThan&timeoutSeconds=1"},
		{query: "watch=1&sendInitialEvents=true&timeoutSeconds=1"},
		{query: "watch=1&allowWatchBookmarks=true&resourceVersion=0", seconds: []int{1, 5}},
		{query: "watch=1&allowWatchBookmarks=true", seconds: []int{2, 7}},
		{query: "watch=1&limit=1&timeoutSeconds=1&resourceVersion=0"},
		{query: ""},
		{query: "resourceVersion=0&limit=2"},
		{query: "limit=2"},
		{query: "limit=2&resourceVersion=" + version},
		{query: "resourceVersionMatch=Exact&resourceVersion=" + version},
		{query: "resourceVersionMatch=Exact&resourceVersion=100000000"},
		{query: "resourceVersion=abc"},
		{query: "labelSelector=app+in+(x,,)"},
		{query: "fieldSelector=spec.x%3Dy"},
	} {
		t.Run(c.query+" "+c.accept, func(t *testing.T) {
			t.Parallel()
			r := exchange.Request{Target: list + c.query, Header: map[string]string{"Accept-Encoding": "gzip"}}
			if c.accept != "" {
				r.Header["Accept"] = c.accept
			}
			got := map[string]int{}
			for _, seconds := range c.seconds {
				timed := r
				timed.Target += fmt.Sprint("&timeoutSeconds=", seconds)
				ask(t, e, timed, got)
			}
			if c.seconds == nil {
				ask(t, e, r, got)
			}
			if len(got) != 1 {
				t.Errorf("%d answers:\n%s", len(got), describe(got))
			}
		})
	}
}

// ask sends a request many times, and counts how often each answer came.
func ask(t *testing.T, e *exchange.Endpoint, r exchange.Request, got map[string]int) {
	var mu sync.Mutex
	var asking sync.WaitGroup
	for range atOnce {
		asking.Go(func() {
			for range times / atOnce {
				answer, err := e.Do(t.Context(), r)
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				got[canonical(answer)]++
				mu.Unlock()
			}
		})
	}
	asking.Wait()
}

func describe(got map[string]int) string {
	var b strings.Builder
	for _, answer := range slices.Sorted(maps.Keys(got)) {
		fmt.Fprintf(&b, "%d times %s\n", got[answer], answer)
	}
	return b.String()
}

// moment is what two answers of one API server differ in: resourceVersions of now.
var moment = regexp.MustCompile(`current: \d+`)

// canonical is what an answer says, apart from what depends on the moment.
func canonical(a *exchange.Answer) string {
	head := fmt.Sprint(a.Status, a.Header.Values("Content-Type"), a.Header.Values("Content-Encoding"))
	events, err := a.Events()
	if err == nil && len(events) > 0 && events[0].Type != "" {
		for _, event := range events {
			if event.Type != "BOOKMARK" || event.End {
				head += fmt.Sprint(" ", event.Type, " ", event.Name)
			}
		}
		return head
	}
	if a.Status >= http.StatusBadRequest {
		return head + moment.ReplaceAllString(string(a.Body), "")
	}
	var list metav1.PartialObjectMetadataList
	if err := json.Unmarshal(a.Body, &list); err != nil {
		return head + string(a.Body)
	}
	for _, item := range list.Items {
		head += fmt.Sprint(" ", item.Name, " ", item.ResourceVersion)
	}
	remaining := int64(0)
	if list.RemainingItemCount != nil {
		remaining = *list.RemainingItemCount
	}
	return fmt.Sprint(head, list.Continue != "", remaining)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
