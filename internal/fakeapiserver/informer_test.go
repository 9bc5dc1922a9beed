package fakeapiserver

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	clientfeatures "k8s.io/client-go/features"
	featurestesting "k8s.io/client-go/features/testing"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// clientset is a typed client whose idle connections are closed with the test.
func clientset(t *testing.T, s *Server) *kubernetes.Clientset {
	t.Helper()
	client := s.Client()
	t.Cleanup(client.CloseIdleConnections)
	c, err := kubernetes.NewForConfigAndClient(s.Config(), client)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// informer is a real shared informer under test.
type informer struct {
	shared cache.SharedIndexInformer
	news   chan struct{} // one token if an event was delivered since the last look
}

// watchedBy runs an informer until the test ends.
func watchedBy(t *testing.T, shared cache.SharedIndexInformer) *informer {
	t.Helper()
	in := &informer{shared: shared, news: make(chan struct{}, 1)}
	tell := func() {
		select {
		case in.news <- struct{}{}:
		default:
		}
	}
	if _, err := shared.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { tell() }, UpdateFunc: func(any, any) { tell() }, DeleteFunc: func(any) { tell() },
	}); err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() { shared.Run(stop) })
	t.Cleanup(func() {
		close(stop)
		wg.Wait()
	})
	return in
}

// matches waits until the informer holds exactly what the server stores.
func (in *informer) matches(t *testing.T, s *Server, want []Obj) {
	t.Helper()
	truth := map[string]string{}
	for _, o := range want {
		truth[o.Key] = formatRV(o.RV)
	}
	ctx := deadline(t)
	for {
		held := map[string]string{}
		for _, o := range in.shared.GetStore().List() {
			m := o.(metav1.Object)
			held[cache.MetaObjectToName(m).String()] = m.GetResourceVersion()
		}
		if in.shared.HasSynced() && maps.Equal(truth, held) {
			return
		}
		select {
		case <-in.news:
		case <-time.After(20 * time.Millisecond): // HasSynced has no notification
		case <-ctx.Done():
			t.Fatalf("want %v\nhold %v\nrequests %v", truth, held, slices.Collect(requestLines(s)))
		}
	}
}

func requestLines(s *Server) func(func(string) bool) {
	return func(yield func(string) bool) {
		for _, r := range s.Requests() {
			if !yield(fmt.Sprintf("%s %s?%s\n", r.Verb, r.Path, r.Query.Encode())) {
				return
			}
		}
	}
}

// Real informers, with and without watch-lists, survive everything that this server can do to them.
func TestInformers(t *testing.T) {
	for _, watchList := range []bool{true, false} {
		t.Run(fmt.Sprintf("WatchList=%v", watchList), func(t *testing.T) {
			featurestesting.SetFeatureDuringTest(t, clientfeatures.WatchListClient, watchList)
			s := server(t, Options{BookmarkPeriod: 20 * time.Millisecond})
			for i := range 10 {
				s.Create(ConfigMaps, "n", fmt.Sprint(i))
			}
			in := watchedBy(t, informers.NewSharedInformerFactory(clientset(t, s), 0).Core().V1().ConfigMaps().Informer())
			in.matches(t, s, s.List(ConfigMaps))
			if lists := s.Lists(ConfigMaps); watchList != (lists == 0) {
				t.Errorf("%d LISTs", lists)
			}
			survive(t, s, in)
		})
	}
}

// survive does to an informer of config maps what happens to a real one, changing something each
// time.
func survive(t *testing.T, s *Server, in *informer) {
	t.Helper()
	changes := func(round int) {
		s.Create(ConfigMaps, "n", fmt.Sprintf("new-%d", round))
		s.Update(ConfigMaps, "n", "1", WithData("round", fmt.Sprint(round)))
		s.Delete(ConfigMaps, "n", fmt.Sprintf("new-%d", round-1))
	}
	for i, fault := range []func(){
		func() {},
		func() { s.DropWatches(ConfigMaps) },
		func() { s.CutWatches(ConfigMaps) },
		func() { s.ForgetHistory(ConfigMaps) },
		func() { s.Restart() },
		func() { s.DelayWatch(ConfigMaps, time.Millisecond) },
	} {
		changes(2 * i)
		fault()
		changes(2*i + 1)
		in.matches(t, s, s.List(ConfigMaps))
	}
}

func TestDynamicInformer(t *testing.T) {
	s := server(t, Options{HTTP2: true})
	s.Create(Widgets, "n", "w", WithField("spec.color", "red"))
	client := s.Client()
	t.Cleanup(client.CloseIdleConnections)
	d, err := dynamic.NewForConfigAndClient(s.Config(), client)
	if err != nil {
		t.Fatal(err)
	}
	in := watchedBy(t, dynamicinformer.NewDynamicSharedInformerFactory(d, 0).ForResource(Widgets).Informer())
	in.matches(t, s, s.List(Widgets))
	s.Update(Widgets, "n", "w", WithField("spec.color", "blue"))
	s.Create(Widgets, "n", "v")
	in.matches(t, s, s.List(Widgets))
}

// A reflector writes into a plain store, without the machinery of an informer around it.
func TestReflector(t *testing.T) {
	s := server(t, Options{})
	s.Create(Pods, "n", "here", WithField("spec.nodeName", "node-1"))
	s.Create(Pods, "n", "there", WithField("spec.nodeName", "node-2"))
	client := clientset(t, s)
	lw := cache.NewListWatchFromClient(client.CoreV1().RESTClient(), "pods", "",
		fields.OneTermEqualSelector("spec.nodeName", "node-1"))
	store := cache.NewStore(cache.MetaNamespaceKeyFunc)
	r := cache.NewReflectorWithOptions(cache.ToListWatcherWithWatchListSemantics(lw, client), &corev1.Pod{}, store,
		cache.ReflectorOptions{})
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() { r.Run(stop) })
	defer wg.Wait()
	defer close(stop)
	holds := func(want ...string) {
		t.Helper()
		for until := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
			keys := store.ListKeys()
			if slices.Sort(keys); slices.Equal(keys, want) {
				return
			} else if time.Now().After(until) {
				t.Fatalf("want %v, hold %v", want, keys)
			}
		}
	}
	holds("n/here")
	s.Update(Pods, "n", "here", WithLabel("a", "b"))
	s.Create(Pods, "n", "too", WithField("spec.nodeName", "node-1"))
	holds("n/here", "n/too")
	s.Delete(Pods, "n", "here")
	holds("n/too")
}
