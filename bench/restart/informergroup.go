package main

import (
	"context"
	"errors"
	"net"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"spillway/bench/rig"
)

// informerGroup is many informers of client-go, with its own settings. Of each object they keep no
// more than what it is and at which version.
type informerGroup struct {
	all    []cache.SharedIndexInformer
	newest []*atomic.Uint64 // resourceVersion that each has seen
	states atomic.Int64     // complete ones that were requested: LISTs, and watches that begin with the state
	read   atomic.Int64     // bytes

	stop    context.CancelFunc
	running sync.WaitGroup
}

// newCrowd returns when all are synced. Close it.
func newCrowd(ctx context.Context, config *rest.Config, n int) (*informerGroup, error) {
	c := &informerGroup{}
	config = rest.CopyConfig(config)
	config.QPS = -1
	config.Dial = c.dial
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return eventCounter{c, next} })
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	ctx, c.stop = context.WithCancel(ctx)
	for range n {
		informer := informers.NewSharedInformerFactory(client, 0).Core().V1().Pods().Informer()
		newest := new(atomic.Uint64)
		err := informer.SetTransform(func(o any) (any, error) { return strip(o, newest) })
		if err != nil {
			return c, err
		}
		c.all, c.newest = append(c.all, informer), append(c.newest, newest)
		c.running.Go(func() { informer.Run(ctx.Done()) })
	}
	synced := rig.Eventually(ctx, 5*time.Minute, 50*time.Millisecond, func() bool {
		for _, one := range c.all {
			if !one.HasSynced() {
				return false
			}
		}
		return true
	})
	if !synced {
		c.close()
		return nil, errors.New("not all informers are synced")
	}
	return c, nil
}

// strip keeps what an object is, and notes its version.
func strip(o any, newest *atomic.Uint64) (any, error) {
	m, ok := o.(metav1.Object)
	if !ok {
		return o, nil
	}
	rv, err := strconv.ParseUint(m.GetResourceVersion(), 10, 64)
	if err == nil && rv > newest.Load() {
		newest.Store(rv)
	}
	return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Namespace: m.GetNamespace(), Name: m.GetName(), ResourceVersion: m.GetResourceVersion(),
	}}, err
}

func (c *informerGroup) dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := (&net.Dialer{Timeout: 30 * time.Second}).DialContext(ctx, network, address)
	return countedConn{conn, c}, err
}

type countedConn struct {
	net.Conn
	crowd *informerGroup
}

// Read counts.
func (c countedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.crowd.read.Add(int64(n))
	return n, err
}

type eventCounter struct {
	crowd *informerGroup
	next  http.RoundTripper
}

// RoundTrip counts.
func (c eventCounter) RoundTrip(r *http.Request) (*http.Response, error) {
	if query := r.URL.Query(); query.Get("watch") != "true" || query.Get("sendInitialEvents") == "true" {
		c.crowd.states.Add(1)
	}
	return c.next.RoundTrip(r)
}

// has reports that all informers have seen a resourceVersion, or a later one.
func (c *informerGroup) has(rv uint64) bool {
	for _, newest := range c.newest {
		if newest.Load() < rv {
			return false
		}
	}
	return true
}

// behind is how many informers do not get to hold what kube-apiserver has within a minute.
func (c *informerGroup) behind(ctx context.Context, config *rest.Config) (int, error) {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return 0, err
	}
	list, err := client.CoreV1().Pods("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return 0, err
	}
	truth := map[string]string{}
	for _, o := range list.Items {
		truth[o.Namespace+"/"+o.Name] = o.ResourceVersion
	}
	left := c.all
	rig.Eventually(ctx, time.Minute, 50*time.Millisecond, func() bool {
		left = slices.DeleteFunc(slices.Clone(left), func(one cache.SharedIndexInformer) bool { return holds(one, truth) })
		return len(left) == 0
	})
	return len(left), ctx.Err()
}

func holds(one cache.SharedIndexInformer, truth map[string]string) bool {
	held := one.GetStore().List()
	for _, o := range held {
		if m := o.(metav1.Object); truth[m.GetNamespace()+"/"+m.GetName()] != m.GetResourceVersion() {
			return false
		}
	}
	return len(held) == len(truth)
}

// close ends all informers.
func (c *informerGroup) close() {
	if c.stop != nil {
		c.stop()
	}
	c.running.Wait()
}
