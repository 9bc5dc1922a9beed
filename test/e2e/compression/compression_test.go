// Package compression shows that Spillway compresses watch-lists where kube-apiserver does, and
// nowhere else: a client that reads only the first gzip member loses the events of all others, and
// kube-apiserver compresses no watch-list before 1.37.
package compression

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"spillway/test/framework/controlplane"
	"spillway/test/framework/process"
)

// objects is large enough that kube-apiserver and Spillway flush several gzip members.
const (
	objects     = 300
	objectBytes = 2 << 10
)

// gates returns the kube-apiservers to compare with: that of KUBERNETES with and without
// watch-lists, or the newest with and without their compression.
func gates() []map[string]bool {
	if os.Getenv("KUBERNETES") != "" {
		return []map[string]bool{{"WatchList": true}, {"WatchList": false}}
	}
	return []map[string]bool{{"WatchListCompression": true}, {"WatchListCompression": false}}
}

func TestWatchListsAreCompressedAsByKubeAPIServer(t *testing.T) {
	for _, gates := range gates() {
		t.Run(fmt.Sprint(gates), func(t *testing.T) {
			t.Parallel()
			compare(t, gates)
		})
	}
}

func compare(t *testing.T, gates map[string]bool) {
	cp, err := controlplane.Start(t.Context(), controlplane.Options{FeatureGates: gates})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cp.Stop)
	create(t, cp)
	proxy := process.StartProxy(t, process.BuildProxy(t), "--kubeconfig="+cp.Kubeconfig(controlplane.Admin),
		"--resources=configmaps", "--listen=127.0.0.1:0", "--insecure-allow-all")

	through := cp.Config(controlplane.Admin)
	through.Host, through.TLSClientConfig = proxy.Plain, rest.TLSClientConfig{}
	for _, version := range []string{"", "0"} {
		direct := watchList(t, cp.Config(controlplane.Admin), version)
		proxied := watchList(t, through, version)
		t.Logf("resourceVersion=%s: %+v from kube-apiserver, %+v from Spillway", version, direct, proxied)
		if served, ok := gates["WatchList"]; ok && served != (direct.status == http.StatusOK) {
			t.Errorf("kube-apiserver answers %d with %v", direct.status, gates)
		}
		if direct.status != http.StatusOK {
			direct = answer{added: objects} // Spillway serves what kube-apiserver would if it did
		}
		if proxied.status != http.StatusOK {
			t.Errorf("resourceVersion=%s: Spillway answers %d", version, proxied.status)
		}
		if proxied.encoding != direct.encoding {
			t.Errorf("resourceVersion=%s: Spillway encodes the watch-list as %q, kube-apiserver as %q", version,
				proxied.encoding, direct.encoding)
		}
		if compresses, ok := gates["WatchListCompression"]; ok && compresses != (direct.encoding == "gzip") {
			t.Errorf("kube-apiserver encodes the watch-list as %q with %v", direct.encoding, gates)
		}
		if proxied.encoding == "" && (proxied.added != objects || direct.added != objects) {
			t.Errorf("resourceVersion=%s: %d events from Spillway, %d from kube-apiserver, want %d", version,
				proxied.added, direct.added, objects)
		}
	}
	if passed := process.Metric(t, proxy.Metrics, "spillway_passthrough_requests_total"); passed > 1 {
		t.Errorf("%d requests were passed through, want the one with an unset resourceVersion at most", passed)
	}
}

func create(t *testing.T, cp *controlplane.ControlPlane) {
	t.Helper()
	client, err := kubernetes.NewForConfig(cp.Config(controlplane.Admin))
	if err != nil {
		t.Fatal(err)
	}
	for i := range objects {
		object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("object-%d", i)},
			Data: map[string]string{"data": strings.Repeat("x", objectBytes)}}
		if _, err := client.CoreV1().ConfigMaps("default").Create(t.Context(), object, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

// answer is what a client that reads only the first gzip member takes from a watch-list.
type answer struct {
	status   int
	encoding string
	added    int // events of type ADDED
}

func watchList(t *testing.T, config *rest.Config, version string) answer {
	t.Helper()
	config.QPS, config.DisableCompression = -1, true
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, strings.TrimSuffix(config.Host, "/")+
		"/api/v1/namespaces/default/configmaps?watch=1&sendInitialEvents=true&allowWatchBookmarks=true"+
		"&resourceVersionMatch=NotOlderThan&timeoutSeconds=3&resourceVersion="+version, nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Accept-Encoding", "gzip")
	client.Timeout = time.Minute
	response, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close() //nolint:errcheck // read to its end
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatalf("%s: %v\n%.500s", response.Status, err, body)
	}
	a := answer{status: response.StatusCode, encoding: response.Header.Get("Content-Encoding")}
	if a.encoding == "gzip" {
		member, err := gzip.NewReader(bufio.NewReader(bytes.NewReader(body)))
		if err != nil {
			t.Fatal(err)
		}
		member.Multistream(false)
		if body, err = io.ReadAll(member); err != nil {
			t.Fatal(err)
		}
	}
	for line := range bytes.Lines(body) {
		var event metav1.WatchEvent
		if json.Unmarshal(line, &event) == nil && event.Type == "ADDED" {
			a.added++
		}
	}
	return a
}
