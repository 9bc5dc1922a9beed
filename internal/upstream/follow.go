package upstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"spillway/internal/object"
)

// FollowDefinitions tells of every CustomResourceDefinition, at first of all and then of each that
// changes: of its epoch, which is "" while it serves nothing or is gone (see
// object.Resource.Definition). It returns when ctx ends, or when upstream does not let us, with its
// error.
func (c *Client) FollowDefinitions(ctx context.Context, log *zap.Logger,
	told func(schema.GroupResource, string)) error {
	gvr := schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	return c.Follow(ctx, log, object.NewResource(gvr, "CustomResourceDefinition", false, true), &ledger{
		fact: func(o *object.Object) (string, error) {
			var d definition
			if err := json.Unmarshal(o.JSON(), &d); err != nil || !d.established() {
				return "", err
			}
			return d.Epoch, nil
		},
		told: func(name, epoch string) { told(schema.ParseGroupResource(name), epoch) },
	})
}

// FollowServices tells of every group and version that another server than kube-apiserver itself
// answers for, and of those that it answers for again: the service is "" then. It returns as
// FollowDefinitions does.
func (c *Client) FollowServices(ctx context.Context, log *zap.Logger,
	told func(gv schema.GroupVersion, service string)) error {
	gvr := schema.GroupVersionResource{Group: "apiregistration.k8s.io", Version: "v1", Resource: "apiservices"}
	return c.Follow(ctx, log, object.NewResource(gvr, "APIService", false, true), &ledger{
		fact: func(o *object.Object) (string, error) {
			var s apiService
			err := json.Unmarshal(o.JSON(), &s)
			return s.origin().service, err
		},
		told: func(name, service string) {
			version, group, _ := strings.Cut(name, ".")
			told(schema.GroupVersion{Group: group, Version: version}, service)
		},
	})
}

// Follow mirrors a resource into a sink until ctx ends, or until upstream does not let us, with its
// error (see Denied).
func (c *Client) Follow(ctx context.Context, log *zap.Logger, r *object.Resource, s Sink, opts ...Option) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	f := &follower{log: log.With(zap.Stringer("resource", r)), denied: cancel}
	reflector := NewReflector(c, r, s, append([]Option{WithLogger(log), WithObserver(f.observer())}, opts...)...)
	f.status = reflector.Status
	defer func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.stop()
	}()
	return reflector.Run(ctx)
}

// Denied reports that upstream does not serve a resource, or not to us: a matter of seconds or of
// for ever, but not one that retrying as if upstream were merely down can mend.
func Denied(err error) bool {
	return apierrors.IsNotFound(err) || apierrors.IsForbidden(err) || apierrors.IsMethodNotSupported(err) ||
		errors.Is(err, ErrUncacheable)
}

// forgiven is how long an apiserver may forbid what it allowed before: one that has just begun
// does, until it has read its rules.
const forgiven = 5 * time.Second

// Denials tells the denials that count from those of an apiserver that has just begun. Safe for use
// by many goroutines.
type Denials struct {
	mu    sync.Mutex
	since time.Time // of the first denial of those that followed each other
}

// Final reports whether an error says that a Reflector is denied its resource, and has been for
// some time if it had it before.
func (d *Denials) Final(err error, s Status) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case !Denied(err):
		d.since = time.Time{}
		return false
	case !s.Synced || !apierrors.IsForbidden(err):
		return true
	case d.since.IsZero() || s.Contact.After(d.since):
		d.since = time.Now()
	}
	return time.Since(d.since) >= forgiven
}

// ledger is a Sink that keeps one fact of each object, and tells of each that becomes another one.
// "" is the fact of what is not there. It keeps no object: a definition may be a megabyte.
type ledger struct {
	fact func(*object.Object) (string, error)
	told func(name, fact string)
	held map[string]string // without those that are ""
}

// Replace tells of all differences.
func (l *ledger) Replace(objects []*object.Object, _ uint64) error {
	gone := l.held
	l.held = map[string]string{}
	for _, o := range objects {
		fact, err := l.read(o)
		if err != nil {
			l.held = gone
			return err
		}
		if fact != "" {
			l.held[o.Key] = fact
		}
	}
	for name, fact := range l.held {
		if gone[name] != fact {
			l.told(name, fact)
		}
	}
	for name := range gone {
		if l.held[name] == "" {
			l.told(name, "")
		}
	}
	return nil
}

// Add tells of a new fact.
func (l *ledger) Add(o *object.Object) error { return l.Update(o) }

// Update tells of a fact that changed.
func (l *ledger) Update(o *object.Object) error {
	fact, err := l.read(o)
	if err == nil {
		l.write(o.Key, fact)
	}
	return err
}

// Delete tells of a fact that is no more.
func (l *ledger) Delete(o *object.Object) error {
	l.write(o.Key, "")
	return nil
}

// Bookmark is no news.
func (l *ledger) Bookmark(*object.Bookmark, uint64) error { return nil }

func (l *ledger) read(o *object.Object) (string, error) {
	fact, err := l.fact(o)
	if err != nil {
		return "", fmt.Errorf("%w: %s: %w", ErrUncacheable, o.Key, err)
	}
	return fact, nil
}

func (l *ledger) write(name, fact string) {
	if l.held[name] == fact {
		return
	}
	if l.held[name] = fact; fact == "" {
		delete(l.held, name)
	}
	l.told(name, fact)
}
