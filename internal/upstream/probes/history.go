package probes

import (
	"context"
	"errors"
	"io"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"spillway/internal/object"
	"spillway/internal/upstream"
	"spillway/internal/upstream/transport"
	"spillway/internal/upstream/wire"
)

// historyGracePeriod is how much longer than its three seconds a watch of history may last:
// upstream ends it in time (W-112), but what it has sent by then may still be on its way.
const historyGracePeriod = 10 * time.Second

// History reads events of a resource from before its mirror began (design D6). Safe for use by many
// goroutines; the caller bounds how many of its watches are open at once.
type History struct {
	client   *upstream.Client
	resource *object.Resource
}

// NewHistory sends nothing yet.
func NewHistory(c *upstream.Client, r *object.Resource) *History {
	return &History{client: c, resource: r}
}

// HistoryStream is one watch of history. It travels on the connection of a LIST that has just made
// its API server current, so that a bookmark comes (design D7). It belongs to one goroutine, and
// must be closed.
type HistoryStream struct {
	history *History
	link    *transport.Link // nil once closed

	// Of the watch; nil before it.
	cancel context.CancelFunc
	body   io.Closer
	lines  *wire.Lines
}

// Begin reads the store's revision, as Prober.Begin does.
func (h *History) Begin(ctx context.Context) (revision uint64, stream *HistoryStream, err error) {
	revision, link, err := takeCurrent(ctx, h.client, h.resource, backfillPurpose)
	if err != nil {
		return 0, nil, err
	}
	return revision, &HistoryStream{history: h, link: link}, nil
}

// Watch begins the watch of the events that a selector sees after from. Upstream applies the
// selector, because only upstream has the objects before their changes.
func (s *HistoryStream) Watch(ctx context.Context, sel object.Selector, from uint64) error {
	if from == 0 || s.body != nil { // 0 would send the whole state
		return errors.New("BUG: a watch of history needs a version to start from, and a connection")
	}
	r := upstream.GetRequestFor("watch", s.history.resource, metav1.ListOptions{
		AllowWatchBookmarks: true, ResourceVersion: strconv.FormatUint(from, 10),
		TimeoutSeconds: new(int64(proofSeconds)),
		LabelSelector:  sel.LabelQuery(), FieldSelector: sel.FieldQuery(),
	})
	r.Via, r.Purpose = s.link, backfillPurpose
	if sel.Namespace != "" {
		r.Path = pathIn(s.history.resource, sel.Namespace)
	}
	ctx, s.cancel = context.WithTimeout(ctx, proofSeconds*time.Second+historyGracePeriod)
	body, err := s.history.client.Get(ctx, r)
	if err != nil {
		s.hangUp()
		return err
	}
	s.body, s.lines = body, wire.NewLines(body)
	return nil
}

// Next is the next event. Without an object it is a bookmark: nothing more happened up to rv.
// io.EOF is the end of the watch, and no evidence; an error that upstream sent is an
// *apierrors.StatusError.
func (s *HistoryStream) Next() (kind object.Type, o *object.Object, rv uint64, err error) {
	line, err := s.lines.Next()
	if err != nil {
		return 0, nil, 0, err
	}
	what, raw, err := wire.SplitEvent(line)
	if err != nil {
		return 0, nil, 0, err
	}
	switch what {
	case watch.Error:
		return 0, nil, 0, wire.StatusError(raw)
	case watch.Bookmark:
		v, err := wire.ParseVersion(raw)
		return 0, nil, v.RV, err
	case watch.Modified:
		kind = object.Modified
	case watch.Deleted:
		kind = object.Deleted
	}
	if o, err = wire.ParseObject(s.history.resource, raw); err != nil {
		return 0, nil, 0, err
	}
	return kind, o, o.RV, nil
}

// Close gives the connection back, or closes it if a watch may still send on it. Idempotent.
func (s *HistoryStream) Close() {
	switch {
	case s.link == nil:
	case s.body == nil:
		s.history.client.Links().Put(s.link)
		s.link = nil
	default:
		_ = s.body.Close()
		s.hangUp()
	}
}

func (s *HistoryStream) hangUp() {
	s.cancel()
	s.link.HangUp()
	s.link = nil
}
