package clients

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"spillway/test/framework/controlplane"
	"spillway/test/framework/process"
)

const (
	protobuf = "application/vnd.kubernetes.protobuf"
	node     = "n1"
	detector = "KUBE_WATCHLIST_INCONSISTENCY_DETECTOR"
)

// TestMain starts itself again with client-go's detector, which reads its variable before anything
// of ours runs: each informer then lists what it has just received by a watch-list, and panics on
// any difference.
func TestMain(m *testing.M) {
	if os.Getenv(detector) == "" {
		self, err := os.Executable()
		if err == nil {
			err = syscall.Exec(self, os.Args, append(os.Environ(), detector+"=true"))
		}
		panic(fmt.Sprintf("starting again with the detector: %v", err))
	}
	os.Exit(m.Run())
}

// wire notes what a client requested and how it was answered.
type wire struct {
	mu    sync.Mutex
	asked []exchange
}

// exchange is a request as it left the client, and what matters of its answer.
type exchange struct {
	path        string
	query       url.Values
	accept      string
	contentType string
	fromMemory  bool // no flow schema of the API server had a part in the answer (W-3)
}

func (w *wire) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		answer, err := next.RoundTrip(r)
		if err == nil {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.asked = append(w.asked, exchange{
				path: r.URL.Path, query: r.URL.Query(), accept: r.Header.Get("Accept"),
				contentType: answer.Header.Get("Content-Type"),
				fromMemory:  answer.StatusCode == http.StatusOK && answer.Header.Get("X-Kubernetes-Pf-Flowschema-Uid") == "",
			})
		}
		return answer, err
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// watches are the watches of a path with selectors.
func (w *wire) watches(path, labels, fields string) []exchange {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(w.asked), func(x exchange) bool {
		return x.path != path || x.query.Get("watch") == "" || x.query.Get("labelSelector") != labels ||
			x.query.Get("fieldSelector") != fields
	})
}

// pattern is one reflector of a component: what it requests, and what it has received.
type pattern struct {
	path, labels, fields string
	store                cache.Store
}

// component is a client with the reflectors of a kube-proxy or a kubelet.
type component struct {
	name     string
	wire     wire
	client   kubernetes.Interface
	patterns []pattern
}

// newComponent makes a client that accepts the types that the component accepts.
func newComponent(t *testing.T, name, server string, accept string) *component {
	t.Helper()
	c := &component{name: name}
	config := &rest.Config{Host: server, QPS: -1, UserAgent: name, ContentConfig: rest.ContentConfig{ContentType: protobuf,
		AcceptContentTypes: accept}}
	config.Wrap(c.wire.wrap)
	var err error
	c.client, err = kubernetes.NewForConfig(config)
	must(t, err)
	return c
}

// informer adds a shared informer of the component's.
func (c *component) informer(t *testing.T, path, labels, fields string,
	of func(informers.SharedInformerFactory) cache.SharedIndexInformer) {
	t.Helper()
	factory := informers.NewSharedInformerFactoryWithOptions(c.client, 0,
		informers.WithTweakListOptions(func(o *metav1.ListOptions) {
			o.LabelSelector, o.FieldSelector = labels, fields
		}))
	i := of(factory)
	go i.RunWithContext(t.Context())
	c.patterns = append(c.patterns, pattern{path, labels, fields, i.GetStore()})
}

// newKubeProxy has the informers of kube-proxy (W-196).
func newKubeProxy(t *testing.T, server string) *component {
	c := newComponent(t, "kube-proxy", server, "")
	c.informer(t, "/api/v1/services", "!service.kubernetes.io/service-proxy-name", "spec.clusterIP!=None",
		func(f informers.SharedInformerFactory) cache.SharedIndexInformer {
			return f.Core().V1().Services().Informer()
		})
	c.informer(t, "/apis/discovery.k8s.io/v1/endpointslices", "!service.kubernetes.io/headless", "",
		func(f informers.SharedInformerFactory) cache.SharedIndexInformer {
			return f.Discovery().V1().EndpointSlices().Informer()
		})
	c.informer(t, "/api/v1/nodes", "", "metadata.name="+node,
		func(f informers.SharedInformerFactory) cache.SharedIndexInformer {
			return f.Core().V1().Nodes().Informer()
		})
	c.informer(t, "/apis/networking.k8s.io/v1/servicecidrs", "", "",
		func(f informers.SharedInformerFactory) cache.SharedIndexInformer {
			return f.Networking().V1().ServiceCIDRs().Informer()
		})
	return c
}

// newKubelet has those of a kubelet: its node, its pods, services with an address, what its drivers
// need, and a reflector of its own for every secret and ConfigMap that its pods name (W-190,
// W-196).
func newKubelet(t *testing.T, server string) *component {
	c := newComponent(t, "kubelet", server, protobuf+",application/json")
	c.informer(t, "/api/v1/nodes", "", "metadata.name="+node,
		func(f informers.SharedInformerFactory) cache.SharedIndexInformer {
			return f.Core().V1().Nodes().Informer()
		})
	c.informer(t, "/api/v1/services", "", "spec.clusterIP!=None",
		func(f informers.SharedInformerFactory) cache.SharedIndexInformer {
			return f.Core().V1().Services().Informer()
		})
	c.informer(t, "/apis/storage.k8s.io/v1/csidrivers", "", "",
		func(f informers.SharedInformerFactory) cache.SharedIndexInformer {
			return f.Storage().V1().CSIDrivers().Informer()
		})
	c.informer(t, "/apis/node.k8s.io/v1/runtimeclasses", "", "",
		func(f informers.SharedInformerFactory) cache.SharedIndexInformer {
			return f.Node().V1().RuntimeClasses().Informer()
		})
	c.reflector(t, "pods", metav1.NamespaceAll, "spec.nodeName="+node, &corev1.Pod{}, 0)
	for i := range perObject {
		c.reflector(t, "secrets", namespace, "metadata.name="+object(i), &corev1.Secret{}, 30*time.Minute)
		c.reflector(t, "configmaps", namespace, "metadata.name="+object(i), &corev1.ConfigMap{}, 30*time.Minute)
	}
	return c
}

// perObject is how many secrets and ConfigMaps have a reflector each.
const perObject = 8

func object(i int) string { return fmt.Sprintf("volume-%d", i) }

// reflector adds a bare reflector, as a kubelet has them.
func (c *component) reflector(t *testing.T, resource, namespace, selector string, expected runtime.Object,
	least time.Duration) {
	t.Helper()
	parsed, err := fields.ParseSelector(selector)
	must(t, err)
	lw := cache.ToListWatcherWithWatchListSemantics(cache.NewListWatchFromClient(c.client.CoreV1().RESTClient(), resource,
		namespace, parsed), c.client)
	store := cache.NewStore(cache.MetaNamespaceKeyFunc)
	r := cache.NewReflectorWithOptions(lw, expected, store,
		cache.ReflectorOptions{Name: c.name + " " + resource + " " + selector, MinWatchTimeout: least})
	go r.RunWithContext(t.Context())
	path := "/api/v1/" + resource
	if namespace != "" {
		path = "/api/v1/namespaces/" + namespace + "/" + resource
	}
	c.patterns = append(c.patterns, pattern{path, "", selector, store})
}

// TestComponentsReflectorsAreServedFromMemory runs the reflectors of a kube-proxy and of a kubelet
// through the proxy while objects are made, change, leave their selectors and go. The reflectors
// end with what the API server lists for the same selectors, and were served protobuf, from memory.
func TestComponentsReflectorsAreServedFromMemory(t *testing.T) {
	cp, w := startCluster(t)
	p := process.StartProxy(t, process.BuildProxy(t), "--kubeconfig="+cp.Kubeconfig(controlplane.Admin),
		"--resources=*,secrets", "--listen-identity=self")
	components := []*component{newKubeProxy(t, p.Plain), newKubelet(t, p.Plain)}
	for _, c := range components {
		c.awaitEqual(t, w.client)
	}
	for round := range 5 {
		w.change(t, round)
	}
	for _, c := range components {
		c.awaitEqual(t, w.client)
		c.expectPatterns(t)
	}
	// The cache-based manager of a kubelet reads any state; after a failed update of its status it
	// reads the present.
	kubelet := components[1]
	_, err := kubelet.client.CoreV1().Secrets(namespace).Get(t.Context(), object(0),
		metav1.GetOptions{ResourceVersion: "0"})
	must(t, err)
	_, err = kubelet.client.CoreV1().Nodes().Get(t.Context(), node, metav1.GetOptions{})
	must(t, err)
}

// expectPatterns expects each reflector's watch to have been requested as the component does it,
// and answered in protobuf from memory.
func (c *component) expectPatterns(t *testing.T) {
	t.Helper()
	accept := map[string]string{"kube-proxy": protobuf + ", */*", "kubelet": protobuf + ",application/json"}[c.name]
	for _, p := range c.patterns {
		asked := c.wire.watches(p.path, p.labels, p.fields)
		if len(asked) == 0 {
			t.Errorf("%s never watched %s by %q and %q", c.name, p.path, p.labels, p.fields)
		}
		for _, x := range asked {
			if x.accept != accept || x.query.Get("allowWatchBookmarks") != "true" {
				t.Errorf("%s asks for %s with Accept %q and %v", c.name, p.path, x.accept, x.query)
			}
			if x.contentType != protobuf+";stream=watch" || !x.fromMemory {
				t.Errorf("%s: a watch of %s by %v is answered as %s, from memory: %t", c.name, p.path, x.query, x.contentType,
					x.fromMemory)
			}
		}
	}
}

// awaitEqual waits until every reflector's store is what the API server lists.
func (c *component) awaitEqual(t *testing.T, direct kubernetes.Interface) {
	t.Helper()
	for _, p := range c.patterns {
		process.Awaiting(t, c.name+" to know "+p.path+" by "+p.labels+" "+p.fields, func(ctx context.Context) error {
			var list metav1.PartialObjectMetadataList
			request := direct.CoreV1().RESTClient().Get().AbsPath(p.path).Param("labelSelector", p.labels).Param("fieldSelector",
				p.fields)
			body, err := request.SetHeader("Accept", "application/json").DoRaw(ctx)
			if err == nil {
				err = json.Unmarshal(body, &list)
			}
			if err != nil {
				return err
			}
			want := map[string]string{}
			for _, o := range list.Items {
				want[cache.MetaObjectToName(&o).String()] = o.ResourceVersion
			}
			if have := versions(p.store); !maps.Equal(have, want) {
				return fmt.Errorf("it has %v, upstream has %v", have, want)
			}
			return nil
		})
	}
}

// versions are the resourceVersions in a store.
func versions(store cache.Store) map[string]string {
	have := map[string]string{}
	for _, o := range store.List() {
		accessor := o.(metav1.Object)
		have[strings.TrimPrefix(accessor.GetNamespace()+"/"+accessor.GetName(), "/")] = accessor.GetResourceVersion()
	}
	return have
}
