package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"

	"spillway/bench/rig"
)

// stayingClient is a client of client-go that stays, lists once, watches from there, and records
// each event.
type stayingClient struct {
	name   string
	maps   corev1client.ConfigMapInterface
	from   uint64         // of its list
	listed map[int]uint64 // the versions in it

	seen    []receivedEvent // owned by watch; read when it has returned
	newest  atomic.Uint64
	resumed atomic.Int64
	refused error // why it would have to list again
}

// stayingClients are as many of each manner of watching.
type stayingClients struct {
	all  []*stayingClient
	stop context.CancelFunc
	done sync.WaitGroup
}

// manners are the ways to watch: which listener, which HTTP, which encoding.
func (s *show) manners() map[string]*rest.Config {
	manners := map[string]*rest.Config{"plain JSON": {Host: s.proxy.URL}}
	for protocol, alpn := range map[string]string{"HTTP/1.1": "http/1.1", "HTTP/2": "h2"} {
		for encoding, media := range map[string]string{"JSON": runtime.ContentTypeJSON,
			"protobuf": runtime.ContentTypeProtobuf} {
			manners[protocol+" "+encoding] = &rest.Config{
				Host: s.proxy.TLSURL, BearerToken: s.token,
				TLSClientConfig: rest.TLSClientConfig{Insecure: true, NextProtos: []string{alpn}},
				ContentConfig:   rest.ContentConfig{ContentType: media, AcceptContentTypes: media},
			}
		}
	}
	return manners
}

// witnessCount is how many there are.
func witnessCount() int { return witnessesEach * 5 }

// openWitnesses opens some of each manner. Close them.
func (s *show) openWitnesses(ctx context.Context) (*stayingClients, error) {
	ctx, stop := context.WithCancel(ctx)
	all := &stayingClients{stop: stop}
	for name, config := range s.manners() {
		config.QPS = -1
		client, err := kubernetes.NewForConfig(config)
		for i := 0; i < witnessesEach && err == nil; i++ {
			w := &stayingClient{name: fmt.Sprintf("%s %d", name, i), maps: client.CoreV1().ConfigMaps(metav1.NamespaceDefault)}
			if err = w.list(ctx); err == nil {
				all.all = append(all.all, w)
				all.done.Go(func() { w.watch(ctx) })
			}
		}
		if err != nil {
			all.close()
			return nil, fmt.Errorf("a watch that is to stay, %s: %w", name, err)
		}
	}
	return all, nil
}

const witnessesEach = 4

func (all *stayingClients) close() {
	all.stop()
	all.done.Wait()
}

func (w *stayingClient) list(ctx context.Context) error {
	list, err := w.maps.List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	w.from, w.listed = versionOf(list), map[int]uint64{}
	for _, o := range list.Items {
		if object, ours := objectOf(&o); ours {
			w.listed[object] = versionOf(&o)
		}
	}
	w.newest.Store(w.from)
	return nil
}

// watch watches until ctx ends. A watch that ends before is resumed where it was; nothing lists
// again.
func (w *stayingClient) watch(ctx context.Context) {
	forever := int64(lifetime().Seconds())
	for ctx.Err() == nil && w.refused == nil {
		stream, err := w.maps.Watch(ctx, metav1.ListOptions{
			ResourceVersion: strconv.FormatUint(w.newest.Load(), 10), AllowWatchBookmarks: true, TimeoutSeconds: &forever,
		})
		if err == nil {
			refused := w.read(stream)
			stream.Stop()
			if ctx.Err() == nil { // to client-go, its own end is an event that cannot be read
				w.refused = refused
			}
		} else if apierrors.IsGone(err) || apierrors.IsResourceExpired(err) {
			w.refused = err
		}
		if ctx.Err() == nil {
			w.resumed.Add(1)
			rig.Say("%s: the watch ended (%v, %v)", w.name, err, w.refused)
			_ = rig.Sleep(ctx, time.Second) // which ends the loop
		}
	}
}

// read takes events until the stream ends. Its error is one that a client can only list after.
func (w *stayingClient) read(stream watch.Interface) error {
	for event := range stream.ResultChan() {
		o, isMap := event.Object.(*corev1.ConfigMap)
		if !isMap {
			return apierrors.FromObject(event.Object)
		}
		rv := versionOf(o)
		if object, ours := objectOf(o); ours && event.Type != watch.Bookmark {
			w.seen = append(w.seen, receivedEvent{kinds[event.Type], object, rv, time.Now()})
		}
		w.newest.Store(rv)
	}
	return nil
}

var kinds = map[watch.EventType]kind{watch.Added: added, watch.Modified: modified, watch.Deleted: deleted}

// objectOf is the number of an object, if the writer made it.
func objectOf(o metav1.Object) (int, bool) {
	number, ours := strings.CutPrefix(o.GetName(), objectName)
	n, err := strconv.Atoi(number)
	return n, ours && err == nil
}

// finish waits until all have seen the newest write, closes them, holds each against the ledger,
// and adds to the course how late they saw what.
func (s *show) finish(ctx context.Context, all *stayingClients, way *levelHistory) {
	writes, newest := s.writer.ledger.until()
	rig.Eventually(ctx, time.Minute, 20*time.Millisecond, func() bool {
		return !slices.ContainsFunc(all.all, func(w *stayingClient) bool { return w.newest.Load() < newest })
	})
	all.close()
	var seen []receivedEvent
	merged, resumed, relists, wrong := 0, 0, 0, 0
	for _, w := range all.all {
		some, err := w.compare(writes, newest, s.outages)
		if err != nil {
			if wrong++; wrong <= 5 {
				s.report.Note("the watch by "+w.name, "%v", err)
			}
		}
		if w.refused != nil {
			relists++
		}
		seen, merged, resumed = append(seen, w.seen...), merged+some, resumed+int(w.resumed.Load())
	}
	r := s.report
	r.Check(s.writer.refused.Load() == 0, "writes",
		"%d; %d more failed while upstream was there, %d were not answered while it was unreachable",
		len(writes), s.writer.refused.Load(), s.writer.lost.Load())
	r.Check(wrong == 0 && len(seen) > 0, "watches that missed, repeated or reordered events",
		"%d of %d; %d events, each held against the writes; "+
			"%d of the versions were overwritten before upstream could be watched again", wrong, len(all.all), len(seen), merged)
	r.Check(resumed == 0 && relists == 0, "watches that began again", "%d resumed, %d would have had to list", resumed,
		relists)
	s.checkOutages(all.all)
	way.addLags(deliveries(writes, seen))
}

// compare holds what it saw up to a version against what was written.
func (w *stayingClient) compare(writes []write, newest uint64, outages *outages) (merged int, err error) {
	n := len(w.seen)
	for n > 0 && w.seen[n-1].rv > newest {
		n--
	}
	return compare(writes, w.listed, w.from, w.seen[:n], outages.covers)
}

// checkOutages says how long it took, once upstream was reachable again, until all clients received
// something new.
func (s *show) checkOutages(all []*stayingClient) {
	for _, what := range []string{killed, frozen} {
		n, slowest := 0, time.Duration(0)
		for _, one := range s.outages.list() {
			if one.what != what {
				continue
			}
			n++
			for _, w := range all {
				slowest = max(slowest, w.silence(one.ended))
			}
		}
		s.report.Check(n > 0 && slowest <= goesOn, what,
			"%d times; within %s after it was back all watches went on (allowed: %s)",
			n, slowest.Round(time.Millisecond), goesOn)
	}
}

// goesOn bounds how long a watch that stays may be silent once upstream is reachable again.
const goesOn = 15 * time.Second

// silence is how long after a moment its next event arrived.
func (w *stayingClient) silence(since time.Time) time.Duration {
	n, _ := slices.BinarySearchFunc(
		w.seen,
		since,
		func(s receivedEvent, since time.Time) int { return s.at.Compare(since) },
	)
	if n == len(w.seen) {
		return time.Since(since)
	}
	return w.seen[n].at.Sub(since)
}
