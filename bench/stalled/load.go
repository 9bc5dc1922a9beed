package main

import (
	"context"
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"spillway/bench/rig"
)

const (
	resource  = "configmaps"
	watchPath = "/api/v1/namespaces/default/configmaps"
	object    = "pulse"
)

// writer changes one object again and again, straight at the API server. Each version says when its
// write began.
type writer struct {
	client kubernetes.Interface
}

func newWriter(ctx context.Context, config *rest.Config) (*writer, error) {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	_, err = client.CoreV1().ConfigMaps("default").Create(ctx, version(0, 0), metav1.CreateOptions{})
	return &writer{client: client}, err
}

// version is the object with so many bytes of data that do not compress.
func version(turn, size int) *corev1.ConfigMap {
	padding := make([]byte, size)
	for i := range padding {
		padding[i] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+-"[rand.IntN(64)]
	}
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: object},
		Data: map[string]string{"at": strconv.FormatInt(time.Now().UnixNano(), 10), "padding": string(padding),
			"turn": strconv.Itoa(turn)},
	}
}

// write makes n versions of a size, one every pause, and returns the resourceVersion of the last.
func (w *writer) write(ctx context.Context, n, size int, pause time.Duration) (uint64, error) {
	last := ""
	for turn := range n {
		next := time.Now().Add(pause)
		updated, err := w.client.CoreV1().ConfigMaps("default").Update(ctx, version(turn, size), metav1.UpdateOptions{})
		if err != nil {
			return 0, err
		}
		last = updated.ResourceVersion
		select {
		case <-time.After(time.Until(next)):
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		}
	}
	return strconv.ParseUint(last, 10, 64)
}

// fillState creates n large objects.
func (w *writer) fillState(ctx context.Context, n int) error {
	for i := range n {
		o := version(0, largeEvent)
		o.Name = "state-" + strconv.Itoa(i)
		if _, err := w.client.CoreV1().ConfigMaps("default").Create(ctx, o, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	return nil
}

// reader is a client that keeps up. It notes how long each event took from the beginning of its
// write.
type reader struct {
	mu      sync.Mutex
	version uint64
	events  int
	delays  []time.Duration      // while recording
	arrived map[uint64]time.Time // while recording: versions
	record  bool
	problem error
}

// readAll starts n readers that end with ctx.
func readAll(ctx context.Context, base string, n int, players *sync.WaitGroup) []*reader {
	return readWith(ctx, rig.NewHTTPClient(), base, n, players)
}

// readWith is readAll for a server that wants more from its clients.
func readWith(ctx context.Context, client *http.Client, base string, n int, players *sync.WaitGroup) []*reader {
	var readers []*reader
	for range n {
		r := &reader{arrived: map[uint64]time.Time{}}
		readers = append(readers, r)
		players.Go(func() {
			r.run(ctx, func() (*rig.Watch, error) { return rig.OpenWatch(ctx, client, base+watchPath, fromNow()) })
		})
	}
	return readers
}

func (r *reader) run(ctx context.Context, open func() (*rig.Watch, error)) {
	watch, err := open()
	if err == nil {
		defer watch.Close()
		for err == nil {
			var e rig.Event
			if e, err = watch.Next(); err == nil {
				r.take(e)
			}
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if ctx.Err() == nil {
		r.problem = err
	}
}

func (r *reader) take(e rig.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e.Name != object {
		return
	}
	r.version = e.RV
	r.events++
	if nanos, err := strconv.ParseInt(e.Field("at"), 10, 64); err == nil && r.record {
		r.delays = append(r.delays, e.At.Sub(time.Unix(0, nanos)))
		r.arrived[e.RV] = e.At
	}
}

// reached reports that the reader has the version.
func (r *reader) reached(version uint64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.version >= version
}

// awaitAll waits until all readers have the version.
func awaitAll(ctx context.Context, readers []*reader, version uint64) bool {
	return rig.Eventually(ctx, time.Minute, 10*time.Millisecond, func() bool {
		for _, r := range readers {
			if !r.reached(version) {
				return false
			}
		}
		return true
	})
}
