package chaos

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"spillway/test/framework/controlplane"
)

// runClients is all the clients and writers of a run.
type runClients struct {
	writers   []*writer
	watchers  []*watcher
	readers   []*reader
	informers []*informer
	strangers []*unauthorizedClient
	direct    dynamic.Interface

	playing sync.WaitGroup
}

// newCast is that of a run: there are strangers where users are authenticated.
func (w *world) newCast(seed uint64) (*runClients, error) {
	direct, err := dynamic.NewForConfig(w.direct)
	if err != nil {
		return nil, err
	}
	c := &runClients{direct: direct}
	for _, r := range resources {
		c.writers = append(c.writers, newWriter(direct, r, seed, w.recorder.era, &w.pen))
	}
	ask := w.asks(c.writers)
	through := &rest.Config{
		Host: w.endpoint(readerUser).url, BearerToken: w.endpoint(readerUser).token, QPS: -1,
		TLSClientConfig: rest.TLSClientConfig{Insecure: true},
	}
	if guarded(seed) {
		c.strangers = []*unauthorizedClient{
			newStranger(newClient(w.endpoint(strangerUser), false), "a stranger over HTTP/1.1"),
			newStranger(newClient(w.endpoint(strangerUser), true), "a stranger over HTTP/2"),
		}
	}
	for i, r := range resources {
		for _, kind := range []struct {
			name             string
			user             controlplane.User
			http2, watchList bool
			namespace, team  string
		}{
			{"list and watch over HTTP/1.1", readerUser, false, false, "", ""},
			{"list and watch over HTTP/2", guestUser, true, false, namespaces[0], ""},
			{"watch-list over HTTP/2", readerUser, true, true, "", ""},
			{"watch-list over HTTP/1.1", guestUser, false, true, "", teams[0]},
		} {
			client := newClient(w.endpoint(kind.user), kind.http2)
			client.metadata = r == pods
			c.watchers = append(c.watchers, newWatcher(client, kind.name+" of "+r.Resource, r, kind.namespace, kind.team,
				kind.watchList, ask))
		}
		c.readers = append(c.readers, newReader(newClient(w.endpoint(readerUser), i == 0), r, c.writers[i], ask))
		informer, err := newInformer(through, r, r == pods)
		if err != nil {
			return nil, err
		}
		c.informers = append(c.informers, informer)
	}
	return c, nil
}

// behind succeeds when no watcher holds anything newer than a revision.
func (c *runClients) behind(revision uint64) error {
	for _, w := range c.watchers {
		if rv := w.version(); rv > revision {
			return fmt.Errorf("%s is at %d, and etcd at %d", w.journal.name, rv, revision)
		}
	}
	return nil
}

// write lets all write until they are stopped.
func (c *runClients) write(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var writing sync.WaitGroup
	for _, w := range c.writers {
		writing.Go(func() { w.run(ctx) })
	}
	return func() {
		cancel()
		writing.Wait()
	}
}

// written waits until each has had n more writes acknowledged.
func (c *runClients) written(ctx context.Context, n int64) error {
	before := map[*writer]int64{}
	for _, w := range c.writers {
		before[w] = w.writes.Load()
	}
	return eventually(ctx, func(context.Context) error {
		for _, w := range c.writers {
			if w.writes.Load() < before[w]+n {
				return fmt.Errorf("%s are not written", w.resource.Resource)
			}
		}
		return nil
	})
}

func (c *runClients) start(ctx context.Context) {
	for _, w := range c.watchers {
		c.playing.Go(func() { w.run(ctx) })
	}
	for _, r := range c.readers {
		c.playing.Go(func() { r.run(ctx) })
	}
	for _, i := range c.informers {
		c.playing.Go(func() { i.run(ctx) })
	}
	for _, s := range c.strangers {
		c.playing.Go(func() { s.run(ctx) })
	}
}

// begun succeeds when every client has a state, and something has happened since.
func (c *runClients) begun(context.Context) error {
	for _, w := range c.watchers {
		if w.state() == nil {
			return fmt.Errorf("%s has no state", w.journal.name)
		}
	}
	for _, i := range c.informers {
		if !i.HasSynced() {
			return fmt.Errorf("an informer of %s has not started", i.resource.Resource)
		}
	}
	for _, r := range c.readers {
		if r.consistent() < 2 {
			return fmt.Errorf("%s has read nothing", r.all.name)
		}
	}
	for _, s := range c.strangers {
		if s.asked.Load() == 0 {
			return fmt.Errorf("%s has asked for nothing", s.journal.name)
		}
	}
	for _, w := range c.writers {
		if w.writes.Load() < 10 {
			return fmt.Errorf("%s are not written", w.resource.Resource)
		}
	}
	return nil
}

// settles lets the writers go on a little, stops them, and waits until every client has the truth,
// which the API server has as well, and consistent reads succeed.
func (c *runClients) settles(ctx context.Context, w *world, stop func()) error {
	err := c.written(ctx, writesAfter)
	stop()
	if err != nil {
		return err
	}
	read := map[*reader]int{}
	for _, r := range c.readers {
		read[r] = r.consistent()
	}
	looked := time.Now()
	return eventually(ctx, func(ctx context.Context) error {
		truth, err := w.recorder.caughtUp(ctx) // again: API servers write, too
		if err != nil {
			return err
		}
		for _, r := range resources {
			if err := c.compare(ctx, r, truth[len(truth)-1]); err != nil && time.Since(looked) > lookEvery {
				looked = time.Now()
				return c.lookAt(ctx, w, err)
			} else if err != nil {
				return err
			}
		}
		for _, r := range c.readers {
			if r.consistent() == read[r] {
				return fmt.Errorf("%s cannot read", r.all.name)
			}
		}
		return w.proxy.ready(ctx)
	})
}

// lookAt finds out whether the clients that do not have the truth ever can: a client that received
// something wrong may not.
func (c *runClients) lookAt(ctx context.Context, w *world, err error) error {
	truth, broken := w.recorder.caughtUp(ctx)
	if broken != nil {
		return broken
	}
	if _, wrong := c.judge(truth, w.excuses); wrong != nil {
		return &permanentError{err}
	}
	return err
}

// lookEvery is the interval at which clients that do not have the truth yet are judged.
const lookEvery = 5 * time.Second

// compare holds what each client has of a resource against the truth.
func (c *runClients) compare(ctx context.Context, r schema.GroupVersionResource, now *timeline) error {
	has := func(name string, v view, state map[string]version) error {
		if w := (&verdict{journal: &receivedEvents{view: v}}).shows(now, state, now.head); w != "" {
			return fmt.Errorf("in the end, %s has: %s", name, w)
		}
		return nil
	}
	list, err := c.direct.Resource(r).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	state := map[string]version{}
	for _, o := range list.Items {
		key, v := read(&o)
		state[key] = v
	}
	if err := has("the API server, of "+r.Resource+",", view{resource: r.Resource}, state); err != nil {
		return err
	}
	for _, w := range c.watchers {
		if v := w.journal.view; v.resource == r.Resource {
			if err := has(w.journal.name, v, w.state()); err != nil {
				return err
			}
		}
	}
	for _, i := range c.informers {
		if i.resource == r {
			if err := has("an informer of "+r.Resource, view{resource: r.Resource}, i.state()); err != nil {
				return err
			}
		}
	}
	return nil
}

// judge judges every client.
func (c *runClients) judge(truth []*timeline, excused *allowances) (tally, error) {
	o := &oracle{truth: truth, excuses: excused, tally: &tally{}}
	var errs []error
	for _, w := range c.watchers {
		errs = append(errs, o.judge(w.journal))
	}
	for _, r := range c.readers {
		errs = append(errs, o.judge(r.all), o.judge(r.red))
		readings := r.made()
		for _, reading := range readings {
			errs = append(errs, o.read(r.resource.Resource, reading))
		}
		o.tally.Consistent += len(readings)
	}
	for _, i := range c.informers {
		errs = append(errs, i.judge(truth, excused))
	}
	for _, s := range c.strangers {
		errs = append(errs, o.judge(s.journal))
		o.tally.Denied += int(s.denied.Load())
	}
	return *o.tally, errors.Join(errs...)
}

func (c *runClients) writes() (n int64) {
	for _, w := range c.writers {
		n += w.writes.Load()
	}
	return n
}

// noticed says how long after a moment each client with a connection of a protocol found out that
// it was dead.
func (c *runClients) noticed(since time.Time, protocol string) string {
	var took []time.Duration
	for _, w := range c.watchers {
		if !strings.Contains(w.journal.name, protocol) {
			continue
		}
		for _, n := range w.journal.all() {
			if n.kind == "broken" && n.at.After(since) {
				took = append(took, n.at.Sub(since).Round(100*time.Millisecond))
				break
			}
		}
	}
	if len(took) == 0 {
		return "nobody over " + protocol
	}
	return fmt.Sprintf("%d over %s after %v to %v", len(took), protocol, slices.Min(took), slices.Max(took))
}
