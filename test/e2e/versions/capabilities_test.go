package main

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"spillway/internal/testutil"
	"spillway/test/framework/controlplane"
	"spillway/test/framework/process"
)

// TestCapabilities compares what Spillway finds out of kube-apiserver with the table of
// docs/versions.md.
func TestCapabilities(t *testing.T) {
	cp, err := controlplane.Start(t.Context(), controlplane.Options{Log: t.Output()})
	must(t, err)
	t.Cleanup(cp.Stop)
	proxy := process.StartProxy(t, process.BuildProxy(t), "--kubeconfig="+cp.Kubeconfig(controlplane.Admin),
		"--resources=configmaps,endpoints", "--listen=127.0.0.1:0", "--listen-identity=self")
	client, err := kubernetes.NewForConfig(cp.Config(controlplane.Admin))
	must(t, err)
	want := fmt.Sprintf("[+]capabilities ok: v1.%d.", cp.Minor())
	capabilities := fmt.Sprintf("watch list %s, watch list compression %s",
		is(cp, "WatchList", cp.Minor() == 32 || cp.Minor() >= 34), compression(cp))
	var last string
	for until := time.Now().Add(testutil.Patience); ; time.Sleep(time.Second) {
		// etcd moves, while endpoints do not
		_, err := client.CoreV1().ConfigMaps("default").Create(t.Context(),
			&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "elsewhere-"}}, metav1.CreateOptions{})
		must(t, err)
		if last = ready(t, proxy.Metrics); strings.Contains(last, want) && strings.Contains(last, capabilities) {
			return
		}
		if time.Now().After(until) {
			t.Fatalf("%s lacks %s… %s", last, want, capabilities)
		}
	}
}

// is whether kube-apiserver has a capability that hangs on a gate, and without a gate set by its
// version.
func is(cp *controlplane.ControlPlane, gate string, byVersion bool) string {
	if set, ok := cp.FeatureGates()[gate]; ok {
		byVersion = set
	}
	if byVersion {
		return "yes"
	}
	return "no"
}

// compression is that of watch-lists, which does not show where there are none.
func compression(cp *controlplane.ControlPlane) string {
	if is(cp, "WatchList", cp.Minor() == 32 || cp.Minor() >= 34) == "no" {
		return "unknown"
	}
	return is(cp, "WatchListCompression", cp.Minor() >= 37)
}

// ready is what /readyz?verbose says.
func ready(t *testing.T, address string) string {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address+"/readyz?verbose", nil)
	must(t, err)
	response, err := http.DefaultClient.Do(request)
	must(t, err)
	defer response.Body.Close() //nolint:errcheck // read to its end
	body, err := io.ReadAll(response.Body)
	must(t, err)
	return string(body)
}
