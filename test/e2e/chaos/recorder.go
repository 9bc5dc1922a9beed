package chaos

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	mvccpb "go.etcd.io/etcd/api/v3/mvccpb"
	etcd "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"
)

// recorder writes down what happens, straight from etcd: not from an API server, whose watches
// break with it, and not over a link. kube-apiserver must keep objects as JSON, which it can.
type recorder struct {
	client *etcd.Client

	// Guarded by mu.
	mu        sync.Mutex
	timelines []*timeline
	moved     chan struct{} // closed when anything was written down
	broken    error
	stop      func() // of the watch; returns when it is over
}

// registry is where kube-apiserver keeps everything; beside it there is a mark of ours.
const (
	registry = "/registry/"
	sentinel = registry + "chaos-sentinel"
)

// prefixes are the recorded resources.
var prefixes = map[string]string{
	configMaps.Resource: registry + "configmaps/",
	pods.Resource:       registry + "pods/",
	widgets.Resource:    registry + widgets.Group + "/" + widgets.Resource + "/",
}

func newRecorder(ctx context.Context, address string) (*recorder, error) {
	client, err := etcd.New(etcd.Config{
		Endpoints: []string{"http://" + address}, DialTimeout: 10 * time.Second, Logger: zap.NewNop(),
		DialOptions: []grpc.DialOption{grpc.WithKeepaliveParams(
			keepalive.ClientParameters{Time: 20 * time.Second, Timeout: 20 * time.Second})},
	})
	if err != nil {
		return nil, fmt.Errorf("cannot make a client of etcd: %w", err)
	}
	r := &recorder{client: client, moved: make(chan struct{})}
	t := newTimeline()
	from, err := r.present(ctx, t)
	if err != nil {
		return nil, err
	}
	r.timelines = []*timeline{t}
	r.follow(from + 1)
	return r, nil
}

// present adds what is there to a timeline, and returns at which revision.
func (r *recorder) present(ctx context.Context, t *timeline) (int64, error) {
	answer, err := r.client.Get(ctx, registry, etcd.WithPrefix())
	if err != nil {
		return 0, fmt.Errorf("cannot read etcd: %w", err)
	}
	for _, kv := range answer.Kvs {
		if err := record(t, kv, false); err != nil {
			return 0, err
		}
	}
	t.head = max(t.head, uint64(answer.Header.Revision))
	return answer.Header.Revision, nil
}

// follow writes down what happens from a revision on, whatever becomes of etcd meanwhile.
func (r *recorder) follow(from int64) {
	ctx, cancel := context.WithCancel(context.Background())
	over := make(chan struct{})
	r.stop = func() {
		cancel()
		<-over
	}
	watch := r.client.Watch(ctx, registry, etcd.WithPrefix(), etcd.WithRev(from))
	go func() {
		defer close(over)
		for answer := range watch {
			if err := answer.Err(); err != nil && ctx.Err() == nil {
				r.fail(fmt.Errorf("etcd does not say what happened: %w", err))
				return
			}
			r.write(answer.Events)
		}
	}()
}

func (r *recorder) fail(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.broken = err
	r.tellLocked()
}

// tellLocked wakes all that wait for a change of the timelines.
func (r *recorder) tellLocked() {
	close(r.moved)
	r.moved = make(chan struct{})
}

func (r *recorder) write(events []*etcd.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	t := r.timelines[len(r.timelines)-1]
	for _, e := range events {
		if err := record(t, e.Kv, e.Type == etcd.EventTypeDelete); err != nil {
			r.broken = err
		}
		t.head = max(t.head, uint64(e.Kv.ModRevision))
	}
	r.tellLocked()
}

// record adds a key of etcd's to a timeline, if it is an object of a resource that is recorded.
func record(t *timeline, kv *mvccpb.KeyValue, gone bool) error {
	for resource, prefix := range prefixes {
		key, ok := strings.CutPrefix(string(kv.Key), prefix)
		if !ok {
			continue
		}
		v := version{rv: uint64(kv.ModRevision), gone: gone}
		if !gone {
			var o object
			if err := json.Unmarshal(kv.Value, &o); err != nil {
				return fmt.Errorf("%s is not kept as JSON: %w", kv.Key, err)
			}
			v.uid, v.mark, v.team = o.Metadata.UID, o.Metadata.Annotations[markAnnotation], o.Metadata.Labels[teamLabel]
		}
		t.add(resource, key, v)
	}
	return nil
}

// era is the number of the present timeline.
func (r *recorder) era() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.timelines) - 1
}

// restored records that etcd has gone back to what it had at a revision, and has forgotten what
// happened since. There must be no writes yet.
func (r *recorder) restored(ctx context.Context, revision int64) error {
	r.mu.Lock()
	stop, last := r.stop, r.timelines[len(r.timelines)-1]
	r.mu.Unlock()
	stop()
	answer, err := r.client.Get(ctx, sentinel)
	if err != nil {
		return fmt.Errorf("cannot read etcd: %w", err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	t := last.branch(uint64(revision))
	t.head = max(t.head, uint64(answer.Header.Revision))
	r.timelines = append(r.timelines, t)
	r.follow(answer.Header.Revision + 1)
	r.tellLocked()
	return nil
}

// caughtUp waits until all is written down that has happened by now, and returns it: timelines of
// which the last is the present one, and which are not written to any more.
func (r *recorder) caughtUp(ctx context.Context) ([]*timeline, error) {
	answer, err := r.client.Put(ctx, sentinel, "")
	if err != nil {
		return nil, fmt.Errorf("cannot write to etcd: %w", err)
	}
	for {
		r.mu.Lock()
		moved, broken, present := r.moved, r.broken, r.timelines[len(r.timelines)-1]
		var all []*timeline
		if present.head >= uint64(answer.Header.Revision) {
			all = append(slices.Clone(r.timelines[:len(r.timelines)-1]), present.branch(present.head))
		}
		r.mu.Unlock()
		if all != nil || broken != nil {
			return all, broken
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return nil, fmt.Errorf("etcd does not tell what happened up to %d: %w", answer.Header.Revision, ctx.Err())
		}
	}
}

func (r *recorder) close() {
	r.stop()
	_ = r.client.Close()
}
