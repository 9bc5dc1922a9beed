package restart

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
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

// crowd is many informers, of all views, in JSON and in protobuf.
type crowd struct {
	t    *testing.T
	all  []informer
	sent counter
}

// newCrowd returns when all of them are synced. They end with the test.
func newCrowd(t *testing.T, config *rest.Config, n int) *crowd {
	t.Helper()
	c := &crowd{t: t}
	var clients []kubernetes.Interface
	for _, media := range []string{"application/json", "application/vnd.kubernetes.protobuf"} {
		config := rest.CopyConfig(config)
		config.QPS, config.ContentType, config.AcceptContentTypes = -1, media, media+",application/json"
		config.Wrap(c.sent.wrap)
		client, err := kubernetes.NewForConfig(config)
		if err != nil {
			t.Fatal(err)
		}
		clients = append(clients, client)
	}
	stop := make(chan struct{})
	var running sync.WaitGroup
	t.Cleanup(func() {
		close(stop)
		running.Wait()
	})
	for i := range n {
		v := views[i%len(views)]
		one := informer{view: v, SharedIndexInformer: informers.NewSharedInformerFactoryWithOptions(clients[i/len(views)%2],
			0,
			informers.WithNamespace(v.namespace), informers.WithTweakListOptions(v.apply)).Core().V1().ConfigMaps().Informer()}
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
	n, _ := strconv.Atoi(o.(*corev1.ConfigMap).Data[pulseName])
	return n
}

// reach waits until every informer has seen so much of the pulse, and returns how long the last one
// and the median took.
func (c *crowd) reach(pulse int, since time.Time) (median, last time.Duration) {
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

// check waits until every informer holds what upstream has, at the versions that it has, and
// nothing else. Upstream is read each time: a write that its sender had given up may yet be done.
func (c *crowd) check(direct kubernetes.Interface) {
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

// truth is what upstream shows of a view: the versions of objects by their names.
func (v view) truth(ctx context.Context, direct kubernetes.Interface) (map[string]string, error) {
	options := metav1.ListOptions{}
	v.apply(&options)
	list, err := direct.CoreV1().ConfigMaps(v.namespace).List(ctx, options)
	if err != nil {
		return nil, err
	}
	truth := map[string]string{}
	for _, o := range list.Items {
		truth[o.Namespace+"/"+o.Name] = o.ResourceVersion
	}
	return truth, nil
}

func (i informer) holds(truth map[string]string) error {
	held := map[string]string{}
	for _, o := range i.GetStore().List() {
		m := o.(*corev1.ConfigMap)
		held[m.Namespace+"/"+m.Name] = m.ResourceVersion
	}
	if maps.Equal(held, truth) {
		return nil
	}
	var differ []string
	for key := range truth {
		if held[key] != truth[key] {
			differ = append(differ, fmt.Sprintf("%s is at %q, held at %q", key, truth[key], held[key]))
		}
	}
	for key := range held {
		if truth[key] == "" {
			differ = append(differ, key+" is a ghost")
		}
	}
	return fmt.Errorf("it differs: %s", strings.Join(differ, ", "))
}
