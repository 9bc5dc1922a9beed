package upstream

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/cache"

	"spillway/internal/object"
)

var (
	_ cache.ReflectorStore         = (*store)(nil)
	_ cache.ReflectorBookmarkStore = (*store)(nil)
)

// store hands on to the Sink what client-go's loop writes. It belongs to the goroutine of that
// loop.
//
// The loop logs an error of its store and goes on, which would leave a gap for ever. So a Sink that
// fails once hears nothing more, the watch is ended with an error, and the loop starts over with a
// complete state.
type store struct {
	ctx    context.Context
	r      *Reflector
	broken bool
}

// Replace is the complete state of a list, or of a watch-list up to its end bookmark.
func (s *store) Replace(items []any, resourceVersion string) error {
	rv, err := parseRV(resourceVersion)
	if err != nil {
		return s.breakOff(err)
	}
	objects := make([]*object.Object, 0, len(items))
	for _, i := range items {
		i, ok := i.(item)
		if !ok {
			return s.breakOff(fmt.Errorf("BUG: a %T was listed", i))
		}
		objects = append(objects, i.object)
	}
	if err := s.r.sink.Replace(objects, rv); err != nil {
		return s.breakOff(err)
	}
	s.broken = false
	s.r.reached(func(st *Status) {
		st.Synced, st.RV = true, rv
		st.Replaces++
	})
	s.r.observer.Completed()
	// client-go keeps the end bookmark of a watch-list to itself; the Sink learns its template here.
	if b := s.r.template.Load(); b != nil {
		if err := s.r.sink.Bookmark(b, rv); err != nil {
			return s.breakOff(err)
		}
	}
	return nil
}

func (s *store) Add(obj any) error    { return s.apply(obj, s.r.sink.Add) }
func (s *store) Update(obj any) error { return s.apply(obj, s.r.sink.Update) }
func (s *store) Delete(obj any) error { return s.apply(obj, s.r.sink.Delete) }

func (s *store) apply(obj any, f func(*object.Object) error) error {
	if s.broken {
		return nil
	}
	i, ok := obj.(item)
	if !ok {
		return s.breakOff(fmt.Errorf("BUG: an event has a %T", obj))
	}
	if err := f(i.object); err != nil {
		return s.breakOff(err)
	}
	s.r.reached(func(st *Status) { st.RV = i.object.RV })
	return nil
}

// Bookmark is called for bookmarks after the initial events.
func (s *store) Bookmark(resourceVersion string) error {
	if s.broken {
		return nil
	}
	rv, err := parseRV(resourceVersion)
	if err != nil {
		return s.breakOff(err)
	}
	b := s.r.template.Load()
	if b == nil {
		return s.breakOff(errors.New("BUG: a bookmark without a template"))
	}
	if err := s.r.sink.Bookmark(b, rv); err != nil {
		return s.breakOff(err)
	}
	s.r.reached(func(st *Status) { st.RV = rv })
	return nil
}

// Resync has nothing to do: the Sink has no handlers to call again.
func (s *store) Resync() error { return nil }

// breakOff leaves the Sink alone until the next Replace and brings that about.
func (s *store) breakOff(err error) error {
	s.broken = true
	s.r.failed(s.ctx, "store", err)
	s.r.relist.Store(true)
	s.r.interrupt(apierrors.NewInternalError(err))
	return err
}

// parseRV reads a resourceVersion, which upstream may make up as it likes: only decimal ones can be
// compared (W-242).
func parseRV(text string) (uint64, error) {
	rv, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%w: resourceVersion %q is not a decimal number", ErrUncacheable, text)
	}
	return rv, nil
}
