package cluster

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"spillway/test/framework/process"
)

// account may read what the chart mirrors by default.
const account = "reader"

// grant makes a service account that may get, list and watch everything that view may.
func (c *cluster) grant(t *testing.T, namespace string) {
	t.Helper()
	_, err := c.client.CoreV1().ServiceAccounts(namespace).Create(t.Context(),
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: account}}, metav1.CreateOptions{})
	must(t, err)
	_, err = c.client.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: namespace + "-" + account},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "view"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: account, Namespace: namespace}},
	}, metav1.CreateOptions{})
	must(t, err)
}

// token is one of an account.
func (c *cluster) token(t *testing.T, namespace, account string) string {
	t.Helper()
	token, err := c.client.CoreV1().ServiceAccounts(namespace).CreateToken(t.Context(), account,
		&authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	must(t, err)
	return token.Status.Token
}

// authority is the certificate that vouches for the release's.
func (c *cluster) authority(t *testing.T) []byte {
	t.Helper()
	authority, err := c.client.CoreV1().ConfigMaps(namespace).Get(t.Context(), release+"-ca", metav1.GetOptions{})
	must(t, err)
	return []byte(authority.Data["ca.crt"])
}

// through is the configuration of a client of the Service.
func (c *cluster) through(t *testing.T, token string) *rest.Config {
	t.Helper()
	return &rest.Config{
		Host: "https://" + release + "." + namespace + ".svc.cluster.local", BearerToken: token, QPS: -1, Dial: c.Dial,
		TLSClientConfig: rest.TLSClientConfig{CAData: c.authority(t)},
	}
}

// informerGroup are informers behind the Service, and a client that writes straight at the
// API server.
type informerGroup struct {
	lists, watches atomic.Int64
	mu             sync.Mutex
	failures       []string

	informers []*writeCounter
	written   atomic.Int64
	stop      func()
}

// writeCounter is an informer's count of one ConfigMap, which is written with one number after
// another.
type writeCounter struct {
	last, gaps atomic.Int64
}

const counter = "counter"

// startCrowd starts informers and the writer; stop it with informerGroup.stop.
func (c *cluster) startCrowd(t *testing.T, size int) *informerGroup {
	t.Helper()
	token := c.token(t, metav1.NamespaceDefault, account)
	maps := c.client.CoreV1().ConfigMaps(metav1.NamespaceDefault)
	write := func(ctx context.Context, n int64) error {
		_, err := maps.Update(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: counter},
			Data: map[string]string{"n": strconv.FormatInt(n, 10)}}, metav1.UpdateOptions{})
		return err
	}
	_, err := maps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: counter},
		Data: map[string]string{"n": "0"}}, metav1.CreateOptions{})
	must(t, err)

	ctx, cancel := context.WithCancel(t.Context())
	cr := &informerGroup{}
	var ends sync.WaitGroup
	for range size {
		config := c.through(t, token)
		config.Wrap(cr.observe)
		client, err := kubernetes.NewForConfig(config)
		must(t, err)
		factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(metav1.NamespaceDefault))
		one := &writeCounter{}
		_, err = factory.Core().V1().ConfigMaps().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc:    func(o any) { one.see(o, true) },
			UpdateFunc: func(_, o any) { one.see(o, false) },
		})
		must(t, err)
		factory.Start(ctx.Done())
		factory.WaitForCacheSync(ctx.Done())
		ends.Go(func() {
			<-ctx.Done()
			factory.Shutdown()
		})
		cr.informers = append(cr.informers, one)
	}
	cr.take()
	ends.Go(func() {
		for n := int64(1); ctx.Err() == nil; {
			if write(ctx, n) == nil {
				cr.written.Store(n)
				n++
			}
			select {
			case <-ctx.Done():
			case <-time.After(50 * time.Millisecond):
			}
		}
	})
	cr.stop = sync.OnceFunc(func() {
		cancel()
		ends.Wait()
		must(t, maps.Delete(context.Background(), counter, metav1.DeleteOptions{}))
	})
	t.Cleanup(cr.stop)
	return cr
}

func (one *writeCounter) see(o any, first bool) {
	object, ok := o.(*corev1.ConfigMap)
	if !ok || object.Name != counter {
		return
	}
	n, err := strconv.ParseInt(object.Data["n"], 10, 64)
	if last := one.last.Swap(n); err != nil || !first && n != last && n != last+1 {
		one.gaps.Add(1)
	}
}

// observe counts the requests of one informer.
func (cr *informerGroup) observe(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		query := r.URL.Query()
		if query.Get("watch") == "" || query.Get("sendInitialEvents") != "" {
			cr.lists.Add(1)
		} else {
			cr.watches.Add(1)
		}
		response, err := next.RoundTrip(r)
		failure := ""
		switch {
		case err != nil && r.Context().Err() == nil:
			failure = err.Error()
		case err == nil && response.StatusCode >= http.StatusBadRequest:
			failure = response.Status
		case err == nil && response.Header.Get("X-Kubernetes-Pf-Flowschema-Uid") != "":
			failure = "the answer is upstream's"
		}
		if failure != "" {
			cr.mu.Lock()
			cr.failures = append(cr.failures, fmt.Sprint(r.URL, ": ", failure))
			cr.mu.Unlock()
		}
		return response, err
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// catchUp awaits that all informers have seen what is written by now.
func (cr *informerGroup) catchUp(t *testing.T, what string) {
	t.Helper()
	until := cr.written.Load() + 1
	process.Awaiting(t, "the informers after "+what, func(context.Context) error {
		for i, one := range cr.informers {
			if last := one.last.Load(); last < until {
				return fmt.Errorf("informer %d has seen %d of %d writes", i, last, until)
			}
		}
		return nil
	})
}

// tally is what has happened to all informers together.
type tally struct {
	lists, watches, gaps int64
	failures             []string
}

func (ta tally) String() string {
	return fmt.Sprintf("%d new watches, %d lists, %d gaps, %d failed requests %q", ta.watches, ta.lists, ta.gaps,
		len(ta.failures), ta.failures)
}

// take is what has happened since it was called last.
func (cr *informerGroup) take() tally {
	ta := tally{lists: cr.lists.Swap(0), watches: cr.watches.Swap(0)}
	for _, one := range cr.informers {
		ta.gaps += one.gaps.Swap(0)
	}
	cr.mu.Lock()
	defer cr.mu.Unlock()
	ta.failures, cr.failures = cr.failures, nil
	return ta
}

// check awaits that the informers have caught up, and that they have listed nothing, missed nothing
// and failed in nothing.
func (cr *informerGroup) check(t *testing.T, what string) {
	t.Helper()
	cr.catchUp(t, what)
	ta := cr.take()
	t.Logf("%s: %d informers, %d writes so far: %v", what, len(cr.informers), cr.written.Load(), ta)
	if ta.lists != 0 || ta.gaps != 0 || len(ta.failures) != 0 {
		t.Errorf("%s: %v; want no list, gap or failure", what, ta)
	}
}
