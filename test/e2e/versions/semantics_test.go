package main

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"spillway/internal/fakeapiserver/rawclient"
	"spillway/internal/testutil"
	"spillway/test/framework/controlplane"
	"spillway/test/framework/process"
)

const path = "/api/v1/namespaces/default/configmaps"

// queries ask for a watch-list in every way that the gate WatchList is about, for longer and for
// shorter than a proof of freshness may take.
func queries() (all []string) {
	for _, version := range []string{"", "&resourceVersion=0"} {
		for _, timeout := range []string{"", "&timeoutSeconds=4", "&timeoutSeconds=6", "&timeoutSeconds=7"} {
			all = append(all, "?watch=1&sendInitialEvents=true&allowWatchBookmarks=1&resourceVersionMatch=NotOlderThan"+
				version+timeout)
		}
	}
	return all
}

// TestSemantics shows what clients get in front of a kube-apiserver without watch-lists: the newest
// version's answers, not older than the request, or those of kube-apiserver with
// --emulated-version=upstream; the same to the same request each time.
func TestSemantics(t *testing.T) {
	cp, err := controlplane.Start(t.Context(), controlplane.Options{FeatureGates: map[string]bool{"WatchList": false}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cp.Stop)
	program := process.BuildProxy(t)
	start := func(args ...string) *process.Proxy {
		return process.StartProxy(t, program, append(args, "--kubeconfig="+cp.Kubeconfig(controlplane.Admin),
			"--resources=configmaps", "--listen=127.0.0.1:0", "--listen-identity=self")...)
	}
	client, err := kubernetes.NewForConfig(cp.Config(controlplane.Admin))
	if err != nil {
		t.Fatal(err)
	}
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "one"}}
	if _, err := client.CoreV1().ConfigMaps("default").Create(t.Context(), object, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Run("newest", func(t *testing.T) {
		t.Parallel()
		newest(t, start().Plain, client)
	})
	t.Run("upstream", func(t *testing.T) {
		t.Parallel()
		ofUpstream(t, start("--emulated-version=upstream").Plain, cp.Config(controlplane.Admin))
	})
}

// newest expects a watch-list that shows the last write, each time.
func newest(t *testing.T, url string, client kubernetes.Interface) {
	t.Helper()
	maps := client.CoreV1().ConfigMaps("default")
	for i := range times {
		for _, query := range queries() {
			patch := fmt.Appendf(nil, `{"data":{"round":"%d"}}`, i)
			written, err := maps.Patch(t.Context(), "one", "application/merge-patch+json", patch, metav1.PatchOptions{})
			if err != nil {
				t.Fatal(err)
			}
			w := rawclient.Watch(testutil.Deadline(t), url, path+query)
			code, _, err := w.Head(testutil.Deadline(t))
			if err != nil || code != http.StatusOK {
				t.Fatalf("%s, time %d: %d %v", query, i, code, err)
			}
			seen, err := w.Until(testutil.Deadline(t), func(e rawclient.WatchEvent) bool { return e.End })
			w.Close()
			if err != nil {
				t.Errorf("%s, time %d: no end bookmark after %v: %v", query, i, seen, err)
			}
			last := ""
			for _, e := range seen {
				if e.Key == "default/one" {
					last = fmt.Sprint(e.RV)
				}
			}
			if consistent := !strings.Contains(query, "resourceVersion=0"); consistent && last != written.ResourceVersion {
				t.Errorf("%s, time %d: object at %s, which was written at %s", query, i, last, written.ResourceVersion)
			}
		}
	}
}

// ofUpstream expects kube-apiserver's own refusal, each time.
func ofUpstream(t *testing.T, url string, config *rest.Config) {
	t.Helper()
	direct, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	for _, query := range queries() {
		wantCode, want := get(t, direct, config.Host+path+query)
		if wantCode != http.StatusUnprocessableEntity {
			t.Fatalf("kube-apiserver answers %s with %d %s", query, wantCode, want)
		}
		for i := range times {
			if code, body := get(t, http.DefaultClient, url+path+query); code != wantCode || body != want {
				t.Fatalf("%s, time %d: %d %s, want %d %s", query, i, code, body, wantCode, want)
			}
		}
	}
}

func get(t *testing.T, client *http.Client, url string) (int, string) {
	t.Helper()
	request, err := http.NewRequestWithContext(testutil.Deadline(t), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close() //nolint:errcheck // read to its end
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(body)
}
