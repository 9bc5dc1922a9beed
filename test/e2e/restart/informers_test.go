package restart

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"spillway/test/framework/process"
)

// counter counts the requests of informers.
type counter struct {
	states  atomic.Int64 // complete ones: LISTs, and watches that begin with the state
	resumes atomic.Int64 // watches that go on from what the informer has
	refused atomic.Int64 // 429s
}

func (c *counter) wrap(next http.RoundTripper) http.RoundTripper { return counting{c, next} }

type counting struct {
	*counter
	next http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (c counting) RoundTrip(r *http.Request) (*http.Response, error) {
	query := r.URL.Query()
	if query.Get("watch") != "true" || query.Get("sendInitialEvents") == "true" {
		c.states.Add(1)
	} else {
		c.resumes.Add(1)
	}
	response, err := c.next.RoundTrip(r)
	if err == nil && response.StatusCode == http.StatusTooManyRequests {
		c.refused.Add(1)
	}
	return response, err
}

// view is what an informer requests.
type view struct{ namespace, labels, fields string }

// views are such that each shows the pulse (see churn).
var views = []view{
	{}, {namespace: pulseNamespace}, {labels: "app=x"}, {fields: "metadata.name=" + pulseName}, {labels: "app!=y"},
	{fields: "metadata.namespace!=n0", labels: "app"},
}

func (v view) apply(o *metav1.ListOptions) { o.LabelSelector, o.FieldSelector = v.labels, v.fields }

// informer is one of client-go's, with its own settings.
type informer struct {
	cache.SharedIndexInformer
	view view
}

// form is how an informer requests objects.
type form struct {
	media    string
	metadata bool // alone
	plain    bool // without gzip
}

// forms are two that show whole objects, as most informers use, and those that differ from them.
var forms = []form{
	{media: "application/json"}, {media: "application/vnd.kubernetes.protobuf"},
	{metadata: true}, {media: "application/json", plain: true},
}

// informers returns the function that makes informers of this form.
func (f form) informers(config *rest.Config) (func(view) cache.SharedIndexInformer, error) {
	config = rest.CopyConfig(config)
	config.QPS, config.DisableCompression = -1, f.plain
	if f.metadata {
		client, err := metadata.NewForConfig(config)
		return func(v view) cache.SharedIndexInformer {
			return metadatainformer.NewFilteredMetadataInformer(client, corev1.SchemeGroupVersion.WithResource("configmaps"),
				v.namespace, 0, cache.Indexers{}, v.apply).Informer()
		}, err
	}
	config.ContentType, config.AcceptContentTypes = f.media, f.media+",application/json"
	client, err := kubernetes.NewForConfig(config)
	return func(v view) cache.SharedIndexInformer {
		return informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(v.namespace),
			informers.WithTweakListOptions(v.apply)).Core().V1().ConfigMaps().Informer()
	}, err
}

// informerGroup is many informers, of all views and forms.
type informerGroup struct {
	t    *testing.T
	all  []informer
	sent counter
}

// newInformerGroup returns when all of them are synced. They end with the test.
func newInformerGroup(t *testing.T, config *rest.Config, n int) *informerGroup {
	t.Helper()
	c := &informerGroup{t: t}
	config = rest.CopyConfig(config)
	config.Wrap(c.sent.wrap)
	var makers []func(view) cache.SharedIndexInformer
	for _, f := range forms {
		maker, err := f.informers(config)
		if err != nil {
			t.Fatal(err)
		}
		makers = append(makers, maker)
	}
	stop := make(chan struct{})
	var running sync.WaitGroup
	t.Cleanup(func() {
		close(stop)
		running.Wait()
	})
	for i := range n {
		v := views[i%len(views)]
		one := informer{view: v, SharedIndexInformer: makers[i/len(views)%len(makers)](v)}
		running.Go(func() { one.Run(stop) })
		c.all = append(c.all, one)
	}
	process.Awaiting(t, "informers to be synced", func(context.Context) error {
		for _, one := range c.all {
			if !one.HasSynced() {
				return fmt.Errorf("%v is not", one.view)
			}
		}
		return nil
	})
	return c
}

// pulse is how much of the pulse an informer has seen.
func (i informer) pulse() int {
	o, ok, err := i.GetStore().GetByKey(pulseNamespace + "/" + pulseName)
	if !ok || err != nil {
		return 0
	}
	n, _ := strconv.Atoi(o.(metav1.Object).GetAnnotations()[pulseName])
	return n
}

// reach waits until every informer has seen so much of the pulse, and returns how long the last one
// and the median took.
func (c *informerGroup) reach(pulse int, since time.Time) (median, last time.Duration) {
	c.t.Helper()
	waiting := c.all
	process.Awaiting(c.t, fmt.Sprintf("informers to see pulse %d", pulse), func(context.Context) error {
		var late []informer
		for _, one := range waiting {
			if one.pulse() < pulse {
				late = append(late, one)
			}
		}
		now := time.Since(since)
		if len(late) <= len(c.all)/2 && median == 0 {
			median = now
		}
		if waiting = late; len(late) > 0 {
			return fmt.Errorf("%d have not, %v among them at %d", len(late), late[0].view, late[0].pulse())
		}
		last = now
		return nil
	})
	return median, last
}

// check waits until every informer holds what upstream has, and nothing else. Upstream is read each
// time: a write that its sender had given up may yet be done.
func (c *informerGroup) check(direct kubernetes.Interface) {
	c.t.Helper()
	for _, v := range views {
		process.Awaiting(c.t, fmt.Sprintf("%v to hold what upstream has", v), func(ctx context.Context) error {
			truth, err := v.truth(ctx, direct)
			if err != nil {
				return err
			}
			for _, one := range c.all {
				if one.view != v {
					continue
				}
				if err := one.holds(truth); err != nil {
					return err
				}
			}
			return nil
		})
	}
}

// truth is what upstream shows of a view: objects by their names.
func (v view) truth(ctx context.Context, direct kubernetes.Interface) (map[string]*corev1.ConfigMap, error) {
	options := metav1.ListOptions{}
	v.apply(&options)
	list, err := direct.CoreV1().ConfigMaps(v.namespace).List(ctx, options)
	if err != nil {
		return nil, err
	}
	truth := map[string]*corev1.ConfigMap{}
	for _, o := range list.Items {
		truth[o.Namespace+"/"+o.Name] = &o
	}
	return truth, nil
}

// holds compares what an informer has with upstream's, field for field.
func (i informer) holds(truth map[string]*corev1.ConfigMap) error {
	var differ []string
	for key, want := range truth {
		switch got, _, _ := i.GetStore().GetByKey(key); got := got.(type) {
		case nil:
			differ = append(differ, key+" is missing")
		case *corev1.ConfigMap:
			if !equality.Semantic.DeepEqual(got, want) {
				differ = append(differ, fmt.Sprintf("%s is %v, held is %v", key, want, got))
			}
		case *metav1.PartialObjectMetadata:
			if !equality.Semantic.DeepEqual(got.ObjectMeta, want.ObjectMeta) {
				differ = append(differ, fmt.Sprintf("%s is %v, held is %v", key, want.ObjectMeta, got.ObjectMeta))
			}
		}
	}
	for _, key := range i.GetStore().ListKeys() {
		if truth[key] == nil {
			differ = append(differ, key+" is a ghost")
		}
	}
	if len(differ) == 0 {
		return nil
	}
	return fmt.Errorf("it differs: %s", strings.Join(differ, ", "))
}
