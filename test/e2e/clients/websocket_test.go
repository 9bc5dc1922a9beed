package clients

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"spillway/test/framework/controlplane"
	"spillway/test/framework/process"
)

// Five fabric8 informers of 1,000 objects each, which watch over WebSockets, are one watch at
// kube-apiserver, by its own metric: through a listener with TLS, and through a plain one with its
// own origin.
func TestFabric8InformersAreOneWatchUpstream(t *testing.T) {
	if missing := java.missing(t); missing != "" {
		t.Skip("SKIPPED fabric8: ", missing)
	}
	dir, err := java.built(t.Context(), process.Repository(t))
	must(t, err)
	cp, client := startControlPlane(t)
	_, err = client.CoreV1().Namespaces().Create(t.Context(),
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{})
	must(t, err)
	const objects, informers = 1000, 5
	want := map[string]string{}
	put := func(ctx context.Context, name string) error {
		meta := metav1.ObjectMeta{Name: name, Labels: map[string]string{"seen": "true"},
			Annotations: map[string]string{"value": name}}
		_, err := client.CoreV1().ConfigMaps(namespace).Create(ctx, &corev1.ConfigMap{ObjectMeta: meta},
			metav1.CreateOptions{})
		return err
	}
	know := func(name string) {
		want[name] = name
		for i := 1; i < informers; i++ {
			want[fmt.Sprint(i, "/", name)] = name
		}
	}
	making, ctx := errgroup.WithContext(t.Context())
	making.SetLimit(8)
	for i := range objects {
		name := fmt.Sprint("object-", i)
		know(name)
		making.Go(func() error { return put(ctx, name) })
	}
	must(t, making.Wait())

	own := upstreamWatches(t, client, "configmaps") // kube-apiserver's watches of itself
	authority, err := controlplane.NewAuthority()
	must(t, err)
	pair, err := authority.IssueServer("spillway")
	must(t, err)
	file := func(name string, text []byte) string {
		path := filepath.Join(t.TempDir(), name)
		must(t, os.WriteFile(path, text, 0o600))
		return path
	}
	p := process.StartProxy(t, process.BuildProxy(t), "--kubeconfig="+cp.Kubeconfig(controlplane.Admin),
		"--resources=configmaps", "--listen-identity=self", "--listen-tls=127.0.0.1:0",
		"--tls-cert-file="+file("tls.crt", pair.Cert), "--tls-private-key-file="+file("tls.key", pair.Key))
	ca, token := file("ca.crt", authority.PEM()), file("token", []byte(cp.Config(controlplane.Admin).BearerToken))
	clients := []*program{
		startProgram(t, "over TLS", dir, append(append(runJava[:5:5], "Fabric8"), p.TLS, ca, token, namespace,
			strconv.Itoa(informers))...),
		startProgram(t, "plain", dir, append(append(runJava[:5:5], "Fabric8"), p.Plain, "", "", namespace,
			strconv.Itoa(informers))...),
	}
	hold := func() {
		t.Helper()
		for _, c := range clients {
			if err := c.holds(t, equals(maps.Clone(want))); err != nil {
				t.Fatalf("%s: %.500v", c.name, err)
			}
		}
	}
	hold()
	if n := process.Metric(t, p.Metrics, "spillway_watches"); n != 2*informers {
		t.Errorf("%d watches are served from memory, want %d", n, 2*informers)
	}
	for i := range 5 {
		name := fmt.Sprint("later-", i)
		know(name)
		must(t, put(t.Context(), name))
	}
	hold()
	if n := upstreamWatches(t, client, "configmaps") - own; n != 1 {
		t.Errorf("kube-apiserver serves %d more watches of ConfigMaps, want 1", n)
	}
}

// upstreamWatches are the watches of a resource in the whole cluster and in the namespace that
// kube-apiserver serves now.
func upstreamWatches(t *testing.T, client kubernetes.Interface, resource string) int {
	t.Helper()
	text, err := client.CoreV1().RESTClient().Get().AbsPath("/metrics").DoRaw(t.Context())
	must(t, err)
	total := 0
	for line := range strings.Lines(string(text)) {
		if !strings.HasPrefix(line, "apiserver_longrunning_requests{") || !strings.Contains(line, `verb="WATCH"`) ||
			!strings.Contains(line, fmt.Sprintf(`resource=%q`, resource)) || !strings.Contains(line, `group=""`) {
			continue
		}
		n, err := strconv.ParseFloat(strings.TrimSpace(line[strings.LastIndexByte(line, ' '):]), 64)
		must(t, err)
		total += int(n)
	}
	return total
}
