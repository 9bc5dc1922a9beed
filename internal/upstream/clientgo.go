package upstream

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/zapr"
	"go.uber.org/zap"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"spillway/internal/object"
)

// This file is what client-go's loop is given in place of what it expects: objects that only have a
// name and a version, a clock whose waits end, a log that is quieter.

var (
	_ runtime.Object            = item{}
	_ metav1.ObjectMetaAccessor = item{}
	_ runtime.Object            = (*bookmark)(nil)
	_ metav1.ObjectMetaAccessor = (*bookmark)(nil)
)

// item is an object on its way through client-go's loop, which asks it for its name, its namespace
// and its version and for nothing else. It is one pointer, so that putting it into an interface
// costs nothing.
type item struct{ object *object.Object }

// GetObjectKind is empty: an item is not decoded or encoded.
func (item) GetObjectKind() schema.ObjectKind { return schema.EmptyObjectKind }

// DeepCopyObject is the item itself, since objects never change.
func (i item) DeepCopyObject() runtime.Object { return i }

// GetObjectMeta shows what the loop looks at.
func (i item) GetObjectMeta() metav1.Object {
	o := i.object
	return &itemMeta{Object: unasked, namespace: o.Namespace(), name: o.Name(), uid: o.UID, version: o.ResourceVersion()}
}

// itemMeta is what the loop looks at, made for each object that arrives: an ObjectMeta would be
// several times as large. It holds copies, not the object: client-go's detector of inconsistencies
// (KUBE_WATCHLIST_INCONSISTENCY_DETECTOR) compares all that it can reach, and two objects of equal
// bytes differ in what was made of them.
type itemMeta struct {
	metav1.Object // what it does not ask for
	namespace     string
	name          string
	uid           types.UID
	version       string
}

var unasked metav1.Object = &metav1.ObjectMeta{}

func (m *itemMeta) GetNamespace() string       { return m.namespace }
func (m *itemMeta) GetName() string            { return m.name }
func (m *itemMeta) GetUID() types.UID          { return m.uid }
func (m *itemMeta) GetResourceVersion() string { return m.version }

// bookmark is a BOOKMARK event's object: a version and, at the end of the initial events, an
// annotation (W-110).
type bookmark struct {
	meta metav1.ObjectMeta
	rv   uint64
}

// GetObjectKind is empty: a bookmark is not decoded or encoded.
func (*bookmark) GetObjectKind() schema.ObjectKind { return schema.EmptyObjectKind }

// DeepCopyObject is the bookmark itself, which never changes.
func (b *bookmark) DeepCopyObject() runtime.Object { return b }

// GetObjectMeta shows the version and the annotations.
func (b *bookmark) GetObjectMeta() metav1.Object { return &b.meta }

// ends reports that it ends the initial events.
func (b *bookmark) ends() bool {
	return b.meta.Annotations[metav1.InitialEventsAnnotationKey] == "true"
}

// parseBookmark reads a bookmark and cuts the template for our own out of it. raw is not kept.
func parseBookmark(r *object.Resource, raw []byte) (*bookmark, *object.Bookmark, error) {
	var from struct {
		Metadata struct {
			ResourceVersion string            `json:"resourceVersion"`
			Annotations     map[string]string `json:"annotations"`
		} `json:"metadata"`
	}
	if err := json.Unmarshal(raw, &from); err != nil {
		return nil, nil, fmt.Errorf("bookmark of %s: %w", r, err)
	}
	rv, err := parseRV(from.Metadata.ResourceVersion)
	if err != nil {
		return nil, nil, fmt.Errorf("bookmark of %s: %w", r, err)
	}
	template, err := object.BookmarkFrom(r, raw)
	if err != nil {
		return nil, nil, err
	}
	b := &bookmark{rv: rv, meta: metav1.ObjectMeta{
		ResourceVersion: from.Metadata.ResourceVersion,
		Annotations:     from.Metadata.Annotations,
	}}
	return b, template, nil
}

// endingClock is the real clock, except that no wait on it outlasts its context: client-go's
// watch-list waits out its back-off, up to a minute, without looking at the context.
type endingClock struct {
	clock.RealClock
	ctx context.Context
}

// After sends the time once, after d or when the context ends.
func (c endingClock) After(d time.Duration) <-chan time.Time {
	ch := make(chan time.Time, 1)
	fire := func() {
		select {
		case ch <- time.Now():
		default:
		}
	}
	forget := context.AfterFunc(c.ctx, fire)
	time.AfterFunc(d, func() {
		forget()
		fire()
	})
	return ch
}

// demotedSink takes the log of client-go's loop. Everything is at debug level, errors too: the
// reflector logs each failure itself.
type demotedSink struct{ logr.LogSink }

func demoteLog(log *zap.Logger) logr.Logger {
	return logr.New(demotedSink{zapr.NewLogger(log).GetSink()})
}

// Enabled is that of one level deeper.
func (h demotedSink) Enabled(level int) bool { return h.LogSink.Enabled(level + 1) }

// Info logs one level deeper.
func (h demotedSink) Info(level int, msg string, keysAndValues ...any) {
	h.LogSink.Info(level+1, msg, keysAndValues...)
}

// Error logs at debug level.
func (h demotedSink) Error(err error, msg string, keysAndValues ...any) {
	if h.Enabled(0) {
		h.Info(0, msg, append(slices.Clip(keysAndValues), "err", err)...)
	}
}

// WithValues implements logr.LogSink.
func (h demotedSink) WithValues(keysAndValues ...any) logr.LogSink {
	return demotedSink{h.LogSink.WithValues(keysAndValues...)}
}

// WithName implements logr.LogSink.
func (h demotedSink) WithName(name string) logr.LogSink { return demotedSink{h.LogSink.WithName(name)} }
