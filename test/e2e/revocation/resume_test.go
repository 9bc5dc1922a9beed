package revocation

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	informersv1 "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"spillway/test/framework/authcluster"
	"spillway/test/framework/exchange"
	"spillway/test/framework/process"
)

// renewer sends requests with the token of the moment, counts those for the whole state, and holds
// watches back until it is released.
type renewer struct {
	next          http.RoundTripper
	token         atomic.Pointer[string]
	states, rests atomic.Int64
	gate          atomic.Pointer[chan struct{}] // nil: open
}

// RoundTrip implements http.RoundTripper.
func (r *renewer) RoundTrip(request *http.Request) (*http.Response, error) {
	query := request.URL.Query()
	if query.Get("watch") != "true" || query.Get("sendInitialEvents") == "true" {
		r.states.Add(1)
	} else {
		r.rests.Add(1)
		if gate := r.gate.Load(); gate != nil {
			select {
			case <-*gate:
			case <-request.Context().Done():
				return nil, request.Context().Err()
			}
		}
	}
	request = request.Clone(request.Context())
	request.Header.Set("Authorization", "Bearer "+*r.token.Load())
	return r.next.RoundTrip(request)
}

// TestInformerResumesOnceItsRightsReturn lets an informer's watch end, first because its token has
// expired, then because its binding is gone. It has another token, and the binding is made again:
// it resumes from where it was, requests the state only once, and misses nothing.
func TestInformerResumesOnceItsRightsReturn(t *testing.T) {
	t.Parallel()
	c := authcluster.Start(t, authcluster.Options{})
	s := newScribe(t, c, "red")
	p := c.ServiceAccount(t, "red", "informer", 0)
	binding := c.Grant(t, p, reads)[0]
	c.Settle(t)
	proxy := process.StartProxy(t, process.BuildProxy(t), append(c.ProxyFlags(), "--resources=configmaps")...)
	good := strings.TrimPrefix(p.Header.Get("Authorization"), "Bearer ")
	ctx, cancel := context.WithCancel(t.Context())
	var writing sync.WaitGroup
	defer writing.Wait()
	defer cancel()
	var (
		r        *renewer
		informer informersv1.ConfigMapInformer
	)
	for lasts := 10 * time.Second; r == nil; lasts *= 2 { // until the state comes before the token expires
		if lasts > process.Patience {
			t.Fatal("no state")
		}
		end := time.Now().Add(lasts)
		r, informer = informed(ctx, t, proxy, c.Expire(t, good, end.Add(-authcluster.Leeway)), end)
	}
	r.token.Store(&good) // for the requests that come
	writing.Go(func() { s.run(ctx, t, 100*time.Millisecond) })

	await := func(what string, done func() bool) {
		t.Helper()
		process.Awaiting(t, what, func(context.Context) error {
			if !done() {
				return fmt.Errorf("not yet: %d requests for the state, %d to go on", r.states.Load(), r.rests.Load())
			}
			return nil
		})
	}
	ended := func(reason string) bool {
		return process.Metric(t, proxy.Metrics,
			fmt.Sprintf(`spillway_reauthorization_terminations_total{reason=%q`, reason)) > 0
	}
	upToDate := func() bool {
		o, err := informer.Lister().ConfigMaps("red").Get(scribbled)
		return err == nil && exchange.Number(o.ResourceVersion) >= s.lastIn("red")
	}
	before := r.rests.Load()
	await("the token to end the watch", func() bool { return ended("credential_expired") })
	await("it to ask to go on with another token", func() bool { return r.rests.Load() > before })
	asked := s.lastIn("red")
	await("what was written since", func() bool { return s.lastIn("red") > asked && upToDate() })

	gate := make(chan struct{})
	r.gate.Store(&gate)
	before = r.rests.Load()
	old, err := c.Admin.RbacV1().RoleBindings("red").Get(ctx, binding, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Admin.RbacV1().RoleBindings("red").Delete(ctx, binding, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	await("the lost binding to end the watch", func() bool { return ended("forbidden") && r.rests.Load() > before })
	if _, err := c.Admin.CoreV1().ConfigMaps("red").Create(
		ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "meanwhile"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	old.ResourceVersion, old.UID = "", ""
	if _, err := c.Admin.RbacV1().RoleBindings("red").Create(ctx, old, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	time.Sleep(remembered)
	close(gate)
	await("it to go on with the binding", upToDate)
	if _, err := informer.Lister().ConfigMaps("red").Get("meanwhile"); err != nil {
		t.Errorf("what was made meanwhile: %v", err)
	}
	if n := r.states.Load(); n != 1 {
		t.Errorf("it asked for the state %d times", n)
	}
	t.Logf("%d requests for the state, %d to go on", r.states.Load(), r.rests.Load())
}

// informed starts an informer that shows a token, and returns when it has its state. There is none
// if that does not come before the end.
func informed(ctx context.Context, t *testing.T, proxy *process.Proxy, token string, end time.Time) (*renewer,
	informersv1.ConfigMapInformer) {
	t.Helper()
	r := &renewer{}
	r.token.Store(&token)
	client, err := kubernetes.NewForConfig(&rest.Config{
		Host: proxy.TLS, QPS: -1, TLSClientConfig: rest.TLSClientConfig{Insecure: true},
		WrapTransport: func(next http.RoundTripper) http.RoundTripper {
			r.next = next
			return r
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	running, stop := context.WithCancel(ctx)
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace("red"))
	t.Cleanup(factory.Shutdown) // t's context has ended by then
	informer := factory.Core().V1().ConfigMaps()
	informer.Informer()
	waiting, done := context.WithDeadline(ctx, end)
	defer done()
	factory.StartWithContext(running)
	if !cache.WaitForCacheSync(waiting.Done(), informer.Informer().HasSynced) {
		stop()
		return nil, nil
	}
	t.Cleanup(stop)
	return r, informer
}

// remembered is longer than the proxy caches a denial.
const remembered = 11 * time.Second
