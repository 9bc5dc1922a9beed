package simulation

import (
	"fmt"
	"maps"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientfeatures "k8s.io/client-go/features"
	featurestesting "k8s.io/client-go/features/testing"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"spillway/internal/fakeapiserver"
)

// informed is a real informer behind a cuttingProxy, and what its handlers know.
type informed struct {
	relay  *cuttingProxy
	shared cache.SharedIndexInformer

	mu   sync.Mutex
	held map[string]string // key to resourceVersion
}

func newInformed(t *testing.T, r *cuttingProxy) *informed {
	t.Helper()
	// The cuttingProxy looks for events in what it passes on.
	transport := &http.Transport{DisableCompression: true}
	t.Cleanup(transport.CloseIdleConnections)
	client, err := kubernetes.NewForConfig(&rest.Config{
		Host: r.url(), QPS: -1, ContentConfig: rest.ContentConfig{ContentType: "application/json"}, Transport: transport,
	})
	if err != nil {
		t.Fatal(err)
	}
	in := &informed{relay: r, held: map[string]string{}}
	in.shared = informers.NewSharedInformerFactory(client, 0).Core().V1().ConfigMaps().Informer()
	if _, err := in.shared.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { in.set(o, true) },
		UpdateFunc: func(_, o any) { in.set(o, true) },
		DeleteFunc: func(o any) { in.set(o, false) },
	}); err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	var running sync.WaitGroup
	running.Go(func() { in.shared.Run(stop) })
	t.Cleanup(func() {
		close(stop)
		running.Wait()
		client.CoreV1().RESTClient().(*rest.RESTClient).Client.CloseIdleConnections()
	})
	return in
}

func (in *informed) set(o any, there bool) {
	if gone, ok := o.(cache.DeletedFinalStateUnknown); ok {
		o = gone.Obj
	}
	m := o.(metav1.Object)
	in.mu.Lock()
	defer in.mu.Unlock()
	key := cache.MetaObjectToName(m).String()
	if there {
		in.held[key] = m.GetResourceVersion()
	} else {
		delete(in.held, key)
	}
}

// holds waits until both the informer's store and what its handlers received are what the server
// stores.
func (in *informed) holds(t *testing.T, s *fakeapiserver.Server) {
	t.Helper()
	want := map[string]string{}
	for _, o := range s.List(fakeapiserver.ConfigMaps) {
		want[o.Key] = fmt.Sprint(o.RV)
	}
	for begin := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		store := map[string]string{}
		for _, o := range in.shared.GetStore().List() {
			m := o.(metav1.Object)
			store[cache.MetaObjectToName(m).String()] = m.GetResourceVersion()
		}
		in.mu.Lock()
		told := maps.Clone(in.held)
		in.mu.Unlock()
		if in.shared.HasSynced() && maps.Equal(store, want) && maps.Equal(told, want) {
			return
		}
		if time.Since(begin) > patience {
			t.Fatalf("the informer holds %v\nits handlers know %v\nthe truth is %v", store, told, want)
		}
	}
}

// Real informers that are cut off after the k-th of n deletions of a seam end up with the truth,
// for every k. Each has a connection of its own to one proxy, which itself has lost its upstream
// watch for good.
func TestInformersCutInsideASeam(t *testing.T) {
	const deletions = 4
	for _, watchList := range []bool{true, false} {
		t.Run(fmt.Sprintf("WatchList=%v", watchList), func(t *testing.T) {
			featurestesting.SetFeatureDuringTest(t, clientfeatures.WatchListClient, watchList)
			s := fakeapiserver.New(fakeapiserver.Options{ProofDelay: 50 * time.Millisecond})
			t.Cleanup(s.Close)
			for i := range deletions {
				s.Create(fakeapiserver.ConfigMaps, "n", fmt.Sprintf("goes-%d", i))
			}
			s.Create(fakeapiserver.ConfigMaps, "n", "changes")
			s.Create(fakeapiserver.ConfigMaps, "n", "stays")
			address := strings.TrimPrefix(startProxy(t, s.URL, "configmaps").Plain, "http://")
			var all []*informed
			for k := range deletions + 1 {
				all = append(all, newInformed(t, newRelay(t, address, k)))
			}
			for _, in := range all {
				in.holds(t, s)
				in.relay.arm()
			}
			lose(s, deletions)
			for k, in := range all {
				select {
				case <-in.relay.cut:
				case <-time.After(patience):
					t.Fatalf("no seam came to the client that was to be cut after %d deletions", k)
				}
				in.holds(t, s)
			}
		})
	}
}

// lose changes things behind the proxy's back, and makes upstream forget what it did.
func lose(s *fakeapiserver.Server, deletions int) {
	s.HoldWatch(fakeapiserver.ConfigMaps)
	for i := range deletions {
		s.Delete(fakeapiserver.ConfigMaps, "n", fmt.Sprintf("goes-%d", i))
	}
	s.Update(fakeapiserver.ConfigMaps, "n", "changes", fakeapiserver.WithData("k", "v"))
	s.Create(fakeapiserver.ConfigMaps, "n", "comes")
	s.ForgetHistory(fakeapiserver.ConfigMaps)
	s.DropWatches(fakeapiserver.ConfigMaps)
	s.ReleaseWatch(fakeapiserver.ConfigMaps)
}
