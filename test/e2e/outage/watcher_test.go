package outage

import (
	"bufio"
	"context"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"spillway/test/framework/process"
)

// seen is the names that a client has received, and whether its stream is over.
type seen struct {
	mu     sync.Mutex
	names  map[string]bool
	ended  bool
	starts int // requests for a complete state
}

func newSeen() *seen { return &seen{names: map[string]bool{}} }

func (s *seen) has(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.names[name]
}

func (s *seen) add(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.names[name] = true
}

func (s *seen) over() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ended
}

// started is how often a complete state was requested.
func (s *seen) started() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.starts
}

// watchRaw watches until the test ends, and looks for names in the lines.
func watchRaw(t *testing.T, proxy *process.Proxy, names func(line string) string) *seen {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, proxy.Plain+configMaps+
		"?watch=1&resourceVersion=0&timeoutSeconds=3600", nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	s := newSeen()
	var reading sync.WaitGroup
	reading.Go(func() {
		defer response.Body.Close()
		lines := bufio.NewScanner(response.Body)
		for lines.Buffer(nil, 1<<20); lines.Scan(); {
			s.add(names(lines.Text()))
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.ended = true
	})
	t.Cleanup(func() {
		cancel()
		reading.Wait()
	})
	return s
}

// stateRequestCounter counts the requests of an informer for a complete state.
type stateRequestCounter struct {
	next http.RoundTripper
	seen *seen
}

// RoundTrip implements http.RoundTripper.
func (c stateRequestCounter) RoundTrip(r *http.Request) (*http.Response, error) {
	if q := r.URL.Query(); q.Get("watch") == "" || q.Get("sendInitialEvents") != "" {
		c.seen.mu.Lock()
		c.seen.starts++
		c.seen.mu.Unlock()
	}
	return c.next.RoundTrip(r)
}

// inform runs an informer until the test ends, and returns when it is synced.
func inform(t *testing.T, proxy *process.Proxy) *seen {
	t.Helper()
	s, synced := informing(t, proxy)
	if !cache.WaitForCacheSync(t.Context().Done(), synced) {
		t.Fatal("an informer does not sync")
	}
	return s
}

// informing runs an informer until the test ends.
func informing(t *testing.T, proxy *process.Proxy) (*seen, cache.InformerSynced) {
	t.Helper()
	s := newSeen()
	config := &rest.Config{Host: proxy.Plain, QPS: -1}
	config.Wrap(func(rt http.RoundTripper) http.RoundTripper { return stateRequestCounter{rt, s} })
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	factory := informers.NewSharedInformerFactory(client, 0)
	informer := factory.Core().V1().ConfigMaps().Informer()
	if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(o any) { s.add(o.(*corev1.ConfigMap).Name) },
	}); err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	factory.Start(stop)
	t.Cleanup(func() {
		close(stop)
		factory.Shutdown()
	})
	return s, informer.HasSynced
}

// nameIn finds the name of the object in a line of a watch.
func nameIn(line string) string {
	_, rest, _ := strings.Cut(line, `"name":"`)
	name, _, _ := strings.Cut(rest, `"`)
	return name
}

// awaitAll waits until every client has received a name, and returns how long that took.
func awaitAll(t *testing.T, all []*seen, name string, from time.Time) time.Duration {
	t.Helper()
	for until := time.Now().Add(process.Patience); time.Now().Before(until); time.Sleep(5 * time.Millisecond) {
		n := 0
		for _, s := range all {
			if s.has(name) {
				n++
			}
		}
		if n == len(all) {
			return time.Since(from)
		}
	}
	t.Fatalf("not all clients hear of %s", name)
	return 0
}
