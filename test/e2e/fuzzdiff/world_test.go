package fuzzdiff

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"spillway/test/framework/controlplane"
	"spillway/test/framework/exchange"
	"spillway/test/framework/process"
)

// resources are those that requests are for; all of them are mirrored.
var resources = []Resource{
	{Prefix: "/api/v1", Plural: "configmaps", Namespaced: true, Names: []string{"a", "b", "b.1", "z"}},
	{Prefix: "/api/v1", Plural: "pods", Namespaced: true, Names: []string{"a", "b"}, Fields: map[string][]string{
		"spec.nodeName": {"n1", "n2"}, "spec.host": {"n1"}, "spec.restartPolicy": {"Always", "Never"},
		"spec.schedulerName": {"nobody"}, "spec.hostNetwork": {"true", "false"},
		"status.phase": {"Pending", "Running"}, "status.podIP": {"10.0.0.1"}, "status.podIPs": {"10.0.0.1"},
		"status.nominatedNodeName": {"n1"}, "spec.serviceAccountName": {"default"},
	}},
	{Prefix: "/api/v1", Plural: "secrets", Namespaced: true, Names: []string{"a", "b"},
		Fields: map[string][]string{"type": {"Opaque", "example.com/own"}}},
	{Prefix: "/api/v1", Plural: "services", Namespaced: true, Names: []string{"a", "b"},
		Fields: map[string][]string{"spec.clusterIP": {"None"}, "spec.type": {"ClusterIP", "ExternalName"}}},
	{Prefix: "/api/v1", Plural: "endpoints", Namespaced: true, Names: []string{"a"}},
	{Prefix: "/api/v1", Plural: "podtemplates", Namespaced: true, Names: []string{"heavy-0", "heavy-7"}},
	{Prefix: "/api/v1", Plural: "namespaces", Names: []string{"a", "a-x", "b"},
		Fields: map[string][]string{"status.phase": {"Active", "Terminating"}}},
	{Prefix: "/api/v1", Plural: "nodes", Names: []string{"n1", "n2"},
		Fields: map[string][]string{"spec.unschedulable": {"true", "false"}}},
	{Prefix: "/apis/apps/v1", Plural: "deployments", Namespaced: true, Names: []string{"a"}},
	{Prefix: "/apis/fuzz.example.com/v1", Plural: "widgets", Namespaced: true, Names: []string{"a", "b"},
		Fields: map[string][]string{
			"spec.color": {"red", "blue"}, "spec.size": {"3", "12345678901234"},
		}},
}

const mirrored = "configmaps,pods,secrets,services,endpoints,podtemplates,namespaces,nodes,deployments.apps," +
	"widgets.v1.fuzz.example.com"

var namespaces = []string{"a", "a-x", "b"}

// world is a cluster, the ways to it, and what is known of it.
type world struct {
	cp      *controlplane.ControlPlane
	client  *kubernetes.Clientset
	dynamic dynamic.Interface
	direct  *exchange.Endpoint
	newest  *exchange.Endpoint // where direct is another
	skew    *exchange.Skew     // what may differ then
	proxied []*exchange.Endpoint
	ways    []Route
	state   State
	rounds  [][]uint64 // versions made by each round
	now     map[string]uint64
}

// newWorld starts a cluster whose history begins, for the proxies and for the API server, after its
// objects were made. The proxies are processes of the binary. front returns where they find the
// API server and the newest one beside it; nil is the API server itself.
func newWorld(t *testing.T, binary string, options controlplane.Options, front func(urls ...string) string) *world {
	t.Helper()
	options.Log = t.Output()
	options.APIServerArgs = []string{"--etcd-compaction-interval=0"} // old states stay, however long it takes
	cp, err := controlplane.Start(t.Context(), options)
	must(t, err)
	t.Cleanup(cp.Stop)
	w := &world{cp: cp, now: map[string]uint64{}}
	config := cp.Config(controlplane.Admin)
	config.WarningHandler = rest.NoWarnings{} // some resources are deprecated, which is the point
	w.client, err = kubernetes.NewForConfig(config)
	must(t, err)
	w.dynamic, err = dynamic.NewForConfig(config)
	must(t, err)
	w.direct = exchange.NewEndpoint("direct", cp.URL(), config)
	w.makeObjects(t)
	ancient := w.patch(t, resources[0], 0, `{"metadata":{"annotations":{"made":"long ago"}}}`)
	must(t, cp.RestartAPIServer(t.Context())) // no API server has the history before
	_, err = cp.Compact(t.Context())
	must(t, err)
	w.startNewest(t, config)
	upstream := rest.CopyConfig(config)
	if front != nil {
		upstream.Host = front(w.cp.URL(), w.newest.Base)
	}
	w.startProxies(t, binary, config, late.Before(t, upstream))
	w.state = State{
		Resources: resources, Namespaces: namespaces, Ancient: []uint64{1, 5, ancient / 2, ancient - 1},
		Credentials: []string{"Bearer nonsense", "Bearer " + cp.Config(controlplane.Alice).BearerToken, "Basic abc",
			"Bearer"},
	}
	return w
}

// startNewest starts the newest API server beside one that is another.
func (w *world) startNewest(t *testing.T, config *rest.Config) {
	t.Helper()
	if w.cp.Newest() {
		return
	}
	peer, err := w.cp.StartPeerOf(t.Context(), "")
	must(t, err)
	w.newest = exchange.NewEndpoint("newest", peer.URL(), config)
	w.skew = exchange.NewSkew(exchange.Release{Minor: w.cp.Minor(), Gates: w.cp.FeatureGates()}, w.newest)
}

// servers are all that answer.
func (w *world) servers() []*exchange.Endpoint {
	all := append([]*exchange.Endpoint{w.direct}, w.proxied...)
	if w.newest != nil {
		all = append(all, w.newest)
	}
	return all
}

func (w *world) startProxies(t *testing.T, binary string, config, upstream *rest.Config) {
	t.Helper()
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	must(t, controlplane.WriteKubeconfig(kubeconfig, upstream))
	p := process.StartProxy(t, binary, "--kubeconfig="+kubeconfig, "--resources="+mirrored,
		"--listen-identity=self", "--listen-allow-connect")
	w.proxied = append(w.proxied, exchange.NewEndpoint("plain", p.Plain, &rest.Config{Host: p.Plain}))
	p = process.StartProxy(t, binary, "--kubeconfig="+kubeconfig, "--resources="+mirrored,
		"--listen=", "--listen-tls=127.0.0.1:0", "--insecure-allow-all")
	w.proxied = append(w.proxied, exchange.NewEndpoint("tls", p.TLS, &rest.Config{
		Host: p.TLS, BearerToken: config.BearerToken, TLSClientConfig: rest.TLSClientConfig{Insecure: true},
	}))
	plain, secure := w.proxied[0], w.proxied[1]
	w.ways = []Route{
		{Direct: w.direct, Proxied: plain},
		{Direct: w.direct, Proxied: secure, Trusting: true},
		{Direct: w.direct.OverHTTP2(), Proxied: secure.OverHTTP2(), Trusting: true},
	}
	for _, e := range w.proxied {
		for _, r := range resources {
			process.Awaiting(t, e.Name+" to mirror "+r.Plural, func(ctx context.Context) error {
				a, err := e.Do(ctx, exchange.Request{Target: r.collection("") + "?resourceVersion=0"})
				if err == nil && (a.Status != http.StatusOK || a.Header.Get(exchange.FlowControl) != "") {
					err = fmt.Errorf("%d, from upstream: %t", a.Status, a.Header.Get(exchange.FlowControl) != "")
				}
				return err
			})
		}
	}
}

func (w *world) makeObjects(t *testing.T) {
	t.Helper()
	ctx := t.Context()
	w.kubectl(t, "create", "-f", "testdata/definition.yaml")
	for _, name := range namespaces {
		_, err := w.client.CoreV1().Namespaces().Create(
			ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": "x"}}},
			metav1.CreateOptions{})
		must(t, err)
	}
	for _, name := range []string{"n1", "n2"} {
		_, err := w.cp.MakeNode(ctx, name)
		must(t, err)
	}
	for i := range 12 { // large enough, together, to be gzipped (W-6)
		_, err := w.client.CoreV1().PodTemplates("a").Create(ctx, &corev1.PodTemplate{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("heavy-%d", i), Labels: map[string]string{"app": "x"},
				Annotations: map[string]string{"note": strings.Repeat("spillway ", 1400)}},
			Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main",
				Image: "example.com/none"}}}},
		}, metav1.CreateOptions{})
		must(t, err)
	}
	process.Awaiting(t, "the widgets to be served", func(ctx context.Context) error {
		_, err := w.dynamic.Resource(gvr(resources[len(resources)-1])).List(ctx, metav1.ListOptions{})
		return err
	})
	w.kubectl(t, "create", "-f", "testdata/objects.yaml")
}

func (w *world) kubectl(t *testing.T, args ...string) {
	t.Helper()
	if out, err := w.cp.Kubectl(t.Context(), args...); err != nil {
		t.Fatalf("kubectl %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

func gvr(r Resource) schema.GroupVersionResource {
	parts := strings.Split(strings.TrimPrefix(r.Prefix, "/"), "/")
	if parts[0] == "api" {
		return schema.GroupVersionResource{Version: parts[1], Resource: r.Plural}
	}
	return schema.GroupVersionResource{Group: parts[1], Version: parts[2], Resource: r.Plural}
}

// remembered is how many rounds back watches begin. An API server remembers at least a hundred
// events of a resource, and a round makes fewer than six.
const remembered = 12

// round changes some objects, waits until every server has them, and takes stock of what can be
// requested then. The number decides what is changed, so that the state of a round depends on
// nothing else.
func (w *world) round(t *testing.T, number int) *State {
	t.Helper()
	var versions []uint64
	for i, r := range resources {
		versions = append(versions,
			w.patch(t, r, number+i, fmt.Sprintf(`{"metadata":{"labels":{"app":%q,"tier":%q}}}`,
				[]string{"x", "y", "z"}[(number+i)%3], fmt.Sprint(number%7))))
	}
	versions = append(versions, w.comeAndGo(t)...)
	// every resource has an event after those, so that every server knows that there are no more
	for i, r := range resources {
		w.now[r.Plural] = w.patch(t, r, number+i, fmt.Sprintf(`{"metadata":{"annotations":{"round":"%d"}}}`, number))
	}
	for _, r := range resources {
		w.settle(t, r)
	}
	w.rounds = append(w.rounds, versions)
	w.state.Versions = nil
	for _, made := range w.rounds[max(0, len(w.rounds)-remembered):] {
		w.state.Versions = append(w.state.Versions, made...)
	}
	w.state.Tokens = w.tokens(t)
	state := w.state
	return &state
}

// patch changes one of a resource's objects and returns the resourceVersion of that.
func (w *world) patch(t *testing.T, r Resource, which int, patch string) uint64 {
	t.Helper()
	name, namespace := r.Names[which%len(r.Names)], "a"
	if r.Namespaced {
		name = r.Names[0]
		if name == "a" {
			namespace = []string{"a", "b"}[which%2]
		}
	}
	o, err := w.objects(r, namespace).Patch(t.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	must(t, err)
	return exchange.Number(o.GetResourceVersion())
}

// objects are those of a resource in a namespace, if they are in one.
func (w *world) objects(r Resource, namespace string) dynamic.ResourceInterface {
	if !r.Namespaced {
		return w.dynamic.Resource(gvr(r))
	}
	return w.dynamic.Resource(gvr(r)).Namespace(namespace)
}

// comeAndGo makes an object that is not there any more.
func (w *world) comeAndGo(t *testing.T) []uint64 {
	t.Helper()
	maps := w.client.CoreV1().ConfigMaps("a")
	made, err := maps.Create(t.Context(),
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "passing", Labels: map[string]string{"app": "y"}}},
		metav1.CreateOptions{})
	must(t, err)
	must(t, maps.Delete(t.Context(), "passing", metav1.DeleteOptions{}))
	return []uint64{exchange.Number(made.ResourceVersion)}
}

// settle waits until every server shows the last change of a resource in answers of any age.
func (w *world) settle(t *testing.T, r Resource) {
	t.Helper()
	for _, e := range w.servers() {
		process.Awaiting(t, e.Name+" to know the last of "+r.Plural, func(ctx context.Context) error {
			at, _, err := listMeta(ctx, e, r.collection("")+"?resourceVersion=0")
			if err == nil && at < w.now[r.Plural] {
				err = fmt.Errorf("at %d", at)
			}
			return err
		})
	}
}

// tokens requests some from every server.
func (w *world) tokens(t *testing.T) []string {
	t.Helper()
	var tokens []string
	for _, r := range resources {
		for _, namespace := range []string{"", "a"} {
			for _, e := range w.servers() {
				_, token, err := listMeta(t.Context(), e, fmt.Sprintf("%s?limit=1&resourceVersion=%d", r.collection(namespace),
					w.now[r.Plural]))
				must(t, err)
				if token != "" {
					tokens = append(tokens, token)
				}
			}
		}
	}
	return tokens
}

func listMeta(ctx context.Context, e *exchange.Endpoint, target string) (version uint64, token string, err error) {
	a, err := e.Do(ctx, exchange.Request{Target: target})
	if err != nil {
		return 0, "", err
	}
	var list metav1.PartialObjectMetadataList
	if err := json.Unmarshal(a.Body, &list); err != nil || a.Status != http.StatusOK {
		return 0, "", fmt.Errorf("%s: %d %w %s", target, a.Status, err, exchange.Clip(a.Body))
	}
	return exchange.Number(list.ResourceVersion), list.Continue, nil
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
