package readyourwrites

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// tally is what all workers together saw.
type tally struct {
	tries, lists, listsFromMemory, watchLists, watchListsFromMemory, gets, unfinished, failed atomic.Int64

	mu    sync.Mutex
	stale []error
}

func (t *tally) isStale(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.stale = append(t.stale, err)
}

func (t *tally) staleReads() []error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.stale
}

func (t *tally) String() string {
	share := func(part, whole int64) string {
		return fmt.Sprintf("%d (%.0f %% from memory)", whole, 100*float64(part)/float64(max(whole, 1)))
	}
	return fmt.Sprintf("%d tries: %s LISTs, %s watch-lists, %d GETs; %d watch-lists had to be asked for again; %d reads "+
		"failed; %d stale",
		t.tries.Load(), share(t.listsFromMemory.Load(), t.lists.Load()),
		share(t.watchListsFromMemory.Load(), t.watchLists.Load()),
		t.gets.Load(), t.unfinished.Load(), t.failed.Load(), len(t.staleReads()))
}

// fewest and most are how many objects a namespace holds.
const (
	fewest = 12
	most   = 20
)

// worker is the only writer of its namespace, and reads it after every write. So it knows exactly
// what each answer must show: neither less nor more.
type worker struct {
	namespace     string
	direct, proxy *client
	tally         *tally
	random        *rand.Rand
	serial        int
	truth         versions
	newest        uint64 // the greatest version that a write was answered with
	lenient       bool   // reads may fail, and writes go straight to the API server: some of its proxies stand still
}

// try is one write and the read after it.
func (w *worker) try(ctx context.Context) error {
	name, err := w.write(ctx)
	if err != nil {
		return err
	}
	reading, cancel := context.WithTimeout(ctx, readPatience)
	defer cancel()
	switch w.random.IntN(16) {
	case 0:
		err = w.get(reading, name)
	case 1, 2:
		err = w.watchList(reading)
	default:
		err = w.list(reading)
	}
	if err != nil && w.lenient && ctx.Err() == nil {
		w.tally.failed.Add(1)
		return nil
	}
	return err
}

// readPatience bounds one read.
const readPatience = time.Minute

// write creates, changes or deletes an object, mostly at the API server, sometimes through the
// proxy.
func (w *worker) write(ctx context.Context) (name string, err error) {
	c := w.direct
	if w.random.IntN(4) == 0 && !w.lenient {
		c = w.proxy
	}
	for name = range w.truth { // any
		break
	}
	w.serial++
	value := strconv.Itoa(w.serial)
	switch n := len(w.truth); {
	case n < fewest || n < most && w.random.IntN(3) == 0:
		name = "c" + value
		w.truth[name], err = c.put(ctx, w.namespace, name, value, true)
	case w.random.IntN(2) == 0:
		delete(w.truth, name)
		return name, c.delete(ctx, w.namespace, name)
	default:
		w.truth[name], err = c.put(ctx, w.namespace, name, value, false)
	}
	w.note(name, err)
	return name, err
}

// note notes the version that a write was answered with.
func (w *worker) note(name string, err error) {
	if rv, e := strconv.ParseUint(w.truth[name], 10, 64); err == nil && e == nil {
		w.newest = max(w.newest, rv)
	}
}

func (w *worker) list(ctx context.Context) error {
	a, err := w.proxy.list(ctx, w.namespace)
	if err != nil {
		return err
	}
	w.tally.lists.Add(1)
	if a.own {
		w.tally.listsFromMemory.Add(1)
	}
	w.compare("LIST", a, w.truth, w.newest)
	return nil
}

// stage is what a worker has written up to a version.
type stage struct {
	newest  uint64
	objects versions
}

func (w *worker) stage() stage { return stage{w.newest, clone(w.truth)} }

// watchList reads by a watch-list. Mostly the worker writes again the moment that the head is
// there: the watch shows that, too.
func (w *worker) watchList(ctx context.Context) error {
	stages, again := []stage{w.stage()}, w.random.IntN(4) > 0 && !w.lenient
	headed := func() ([]string, error) {
		if !again {
			return nil, nil
		}
		again = false
		made, err := w.writeTwice(ctx)
		stages = append(stages, made...)
		var versions []string
		for _, s := range made {
			versions = append(versions, strconv.FormatUint(s.newest, 10))
		}
		return versions, err
	}
	for {
		seen, err := w.proxy.watchList(ctx, w.namespace, headed)
		a := seen.initial
		switch {
		case errors.Is(err, errUnfinished):
			w.tally.unfinished.Add(1)
			stages = stages[len(stages)-1:]
			continue
		case errors.Is(err, errLost):
			w.tally.isStale(err)
			return nil
		}
		if err != nil {
			return err
		}
		w.tally.watchLists.Add(1)
		if a.own {
			w.tally.watchListsFromMemory.Add(1)
		}
		for len(stages) > 1 && stages[1].newest <= a.rv {
			stages = stages[1:]
		}
		w.compare("watch-list", a, stages[0].objects, stages[0].newest)
		a.objects = seen.later
		w.compare("watch-list, as it went on,", a, w.truth, stages[0].newest)
		return nil
	}
}

// writeTwice creates an object and changes it.
func (w *worker) writeTwice(ctx context.Context) (made []stage, err error) {
	w.serial++
	name := fmt.Sprintf("c%d", w.serial)
	for _, create := range []bool{true, false} {
		value := fmt.Sprintf("created: %t", create)
		if w.truth[name], err = w.direct.put(ctx, w.namespace, name, value, create); err != nil {
			return nil, err
		}
		w.note(name, nil)
		made = append(made, w.stage())
	}
	return made, nil
}

func (w *worker) get(ctx context.Context, name string) error {
	a, err := w.proxy.get(ctx, w.namespace, name)
	if err != nil {
		return err
	}
	w.tally.gets.Add(1)
	a.rv = w.newest // a GET names none but the object's own
	want := versions{}
	if rv, ok := w.truth[name]; ok {
		want[name] = rv
	}
	w.compare("GET", a, want, w.newest)
	return nil
}

// compare notes an answer that does not show exactly what the worker wrote, or that says it is
// older than the version of that.
func (w *worker) compare(what string, a answer, want versions, newest uint64) {
	source := "upstream"
	if a.own {
		source = "memory"
	}
	switch {
	case !reflect.DeepEqual(a.objects, want):
		w.tally.isStale(fmt.Errorf("%s of %s from %s at %d shows %v, not %v", what, w.namespace, source, a.rv, a.objects,
			want))
	case a.rv < newest:
		w.tally.isStale(fmt.Errorf("%s of %s from %s says it is at %d, below %d", what, w.namespace, source, a.rv, newest))
	}
}
