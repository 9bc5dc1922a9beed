package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

const (
	listEvery  = 100 * time.Millisecond
	writeEvery = 100 * time.Millisecond
	stamp      = "at" // the key of a ConfigMap under which it says when it was written, in Unix nanoseconds
	// clientTries is how often client-go repeats what was cut off by a reset.
	clientTries = 10
	// tooLate is when an answer or an event has not come: what the client would wait for anyway.
	tooLate = 30 * time.Second
)

// client is a normal client: client-go's watch, and LISTs over connections of their own, each of
// which has to be admitted.
type client struct {
	config  *rest.Config
	proxied kubernetes.Interface
	direct  kubernetes.Interface
	object  *corev1.ConfigMap
	stop    context.CancelFunc
	players sync.WaitGroup

	mu      sync.Mutex
	events  []time.Duration      // how much later than directly each event came
	delays  []time.Duration      // how long after its write each event came
	arrived map[string]time.Time // by stamp: events that came one of the two ways so far
	broken  int
}

// newClient starts to write and to watch.
func newClient(ctx context.Context, config *rest.Config, direct kubernetes.Interface) (*client, error) {
	proxied, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	c := &client{config: config, proxied: proxied, direct: direct, arrived: map[string]time.Time{}}
	c.object, err = direct.CoreV1().ConfigMaps("default").Create(
		ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "flood-"}}, metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}
	playing, cancel := context.WithCancel(ctx)
	c.stop = func() {
		cancel()
		c.players.Wait()
	}
	c.players.Go(func() { c.write(playing) })
	c.players.Go(func() { c.watch(playing, c.proxied, c.arrives) })
	c.players.Go(func() { c.watch(playing, c.direct, c.arrivesDirectly) })
	return c, nil
}

// write writes directly to the API server.
func (c *client) write(ctx context.Context) {
	tick := time.NewTicker(writeEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		patch := fmt.Appendf(nil, `{"data":{%q:"%d"}}`, stamp, time.Now().UnixNano())
		// what is not written is not waited for
		_, _ = c.direct.CoreV1().ConfigMaps("default").Patch(ctx, c.object.Name, "application/merge-patch+json", patch,
			metav1.PatchOptions{})
	}
}

// watch watches, again when a watch ends, and calls arrives with each stamp.
func (c *client) watch(ctx context.Context, at kubernetes.Interface, arrives func(stamp string)) {
	for ctx.Err() == nil {
		w, err := at.CoreV1().ConfigMaps("default").Watch(
			ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + c.object.Name, ResourceVersion: "0"})
		if err != nil {
			c.note(func() { c.broken++ })
			time.Sleep(listEvery)
			continue
		}
		last := ""
		for event := range w.ResultChan() {
			if object, ok := event.Object.(*corev1.ConfigMap); ok && object.Data[stamp] != last {
				last = object.Data[stamp]
				arrives(last)
			}
		}
		w.Stop()
		if ctx.Err() == nil {
			c.note(func() { c.broken++ })
		}
	}
}

// arrives notes an event from the proxy: it is late by as much as it came after the API server's
// own. What delays that, on the same machine, is no matter of the proxy.
func (c *client) arrives(stamp string) {
	now := time.Now()
	written, err := strconv.ParseInt(stamp, 10, 64)
	if err != nil {
		return
	}
	c.note(func() {
		c.delays = append(c.delays, now.Sub(time.Unix(0, written)))
		if direct, ok := c.arrived[stamp]; ok {
			c.events = append(c.events, now.Sub(direct))
		} else {
			c.events = append(c.events, 0)
		}
		delete(c.arrived, stamp)
	})
}

// arrivesDirectly notes an event from the API server, for arrives.
func (c *client) arrivesDirectly(stamp string) {
	now := time.Now()
	c.note(func() { c.arrived[stamp] = now })
}

func (c *client) note(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f()
}

// waits are how long a client waited each time, the shortest first.
type waits []time.Duration

func newWaits(all ...[]time.Duration) waits {
	w := slices.Concat(all...)
	slices.Sort(w)
	return w
}

// percentile is what so many of a hundred waits did not exceed; 0: there was none.
func (w waits) percentile(n int) time.Duration {
	if len(w) == 0 {
		return 0
	}
	return w[len(w)*n/100].Round(10 * time.Microsecond)
}

func (w waits) String() string {
	return fmt.Sprintf("p50 %s p99 %s", w.percentile(50), w.percentile(99))
}

// score is what a client waited for.
type score struct {
	list, event, passed, write waits
	delay                      waits // of events, from their writes on
	failed, broken             int
	repeats                    int   // of requests whose connection was reset
	why                        error // a request failed
}

// and is what a client waited for in both of two measurements.
func (s score) and(t score) score {
	return score{list: newWaits(s.list, t.list), event: newWaits(s.event, t.event), passed: newWaits(s.passed, t.passed),
		write: newWaits(s.write, t.write), delay: newWaits(s.delay, t.delay), failed: s.failed + t.failed,
		broken: s.broken + t.broken, repeats: s.repeats + t.repeats, why: cmp.Or(s.why, t.why)}
}

func (s score) String() string {
	text := fmt.Sprintf("LIST over a new TLS connection %s (%d)", s.list, len(s.list))
	text += fmt.Sprintf("; event later than directly by %s (%d), after its write by %s", s.event, len(s.event), s.delay)
	text += fmt.Sprintf("; GET passed through %s; write %s", s.passed, s.write)
	if s.repeats > 0 {
		text += fmt.Sprintf("; %d repeated after a reset", s.repeats)
	}
	if s.failed > 0 {
		text += fmt.Sprintf("; %d requests failed: %v", s.failed, s.why)
	}
	return text
}

// measure lists, gets and writes for so long, and counts what the watch gets meanwhile.
func (c *client) measure(ctx context.Context, length time.Duration) score {
	c.note(func() { c.events, c.delays, c.broken = nil, nil, 0 })
	var s score
	object := "/api/v1/namespaces/default/configmaps/" + c.object.Name
	requests := []struct {
		method, target, body string
		took                 []time.Duration
	}{
		{method: http.MethodGet, target: "/api/v1/namespaces/default/configmaps?resourceVersion=0"},
		{method: http.MethodGet, target: "/api/v1/namespaces/default"},
		{method: http.MethodPatch, target: object, body: `{"data":{"written":"%d"}}`},
	}
	for end := time.Now().Add(length); time.Now().Before(end) && ctx.Err() == nil; time.Sleep(listEvery) {
		for i := range requests {
			r := &requests[i]
			body := r.body
			if body != "" {
				body = fmt.Sprintf(body, time.Now().UnixNano())
			}
			began := time.Now()
			err := c.ask(ctx, r.method, r.target, body)
			for tries := 1; tries < clientTries && (utilnet.IsConnectionReset(err) || utilnet.IsProbableEOF(err)); tries++ {
				s.repeats++
				err = c.ask(ctx, r.method, r.target, body)
			}
			if err != nil {
				s.failed, s.why = s.failed+1, fmt.Errorf("%s %s: %w", r.method, r.target, err)
				continue
			}
			r.took = append(r.took, time.Since(began))
		}
	}
	s.list, s.passed, s.write = newWaits(requests[0].took), newWaits(requests[1].took), newWaits(requests[2].took)
	c.note(func() { s.event, s.delay, s.broken = newWaits(c.events), newWaits(c.delays), c.broken })
	return s
}

// ask asks over a connection of its own.
func (c *client) ask(ctx context.Context, method, target, body string) error {
	ctx, cancel := context.WithTimeout(ctx, tooLate)
	defer cancel()
	fresh := rest.CopyConfig(c.config)
	fresh.NextProtos = []string{"http/1.1"}
	tls, err := rest.TLSConfigFor(fresh)
	if err != nil {
		return err
	}
	transport := &http.Transport{TLSClientConfig: tls, DisableKeepAlives: true}
	defer transport.CloseIdleConnections()
	r, err := http.NewRequestWithContext(ctx, method, c.config.Host+target, strings.NewReader(body))
	if err != nil {
		return err
	}
	if body != "" {
		r.Header.Set("Content-Type", "application/merge-patch+json")
	}
	if token := c.config.BearerToken; token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := transport.RoundTrip(r)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if _, err := io.Copy(io.Discard, response.Body); err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("answered %s", response.Status)
	}
	return nil
}
