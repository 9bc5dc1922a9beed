package upstream

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"go.uber.org/zap"
	"k8s.io/client-go/rest"

	"spillway/internal/fakeapiserver"
	"spillway/internal/object"
	"spillway/internal/testutil"
	"spillway/internal/upstream/transport"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var deadline, eventually = testutil.Deadline, testutil.Eventually

var (
	configMaps = fakeapiserver.ObjectResource(fakeapiserver.ConfigMaps)
	widgets    = fakeapiserver.ObjectResource(fakeapiserver.Widgets)
	nodes      = fakeapiserver.ObjectResource(fakeapiserver.Nodes)
)

// apiserver starts a fake API server and a client for it.
func apiserver(t *testing.T, o fakeapiserver.Options) (*fakeapiserver.Server, *Client) {
	t.Helper()
	s := fakeapiserver.New(o)
	t.Cleanup(s.Close)
	return s, clientFor(t, s.Config())
}

func clientFor(t testing.TB, cfg *rest.Config) *Client {
	t.Helper()
	transports, err := transport.New(transport.ConfigSource{Config: cfg}, zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	c, err := NewClient(transports)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// recorder is a Sink that records its calls, and the state that follows from them.
type recorder struct {
	mu    sync.Mutex
	wake  chan struct{}
	log   []string
	state map[string]*object.Object
	rv    uint64
	fail  func(what string) error
}

func newRecorder() *recorder {
	return &recorder{wake: make(chan struct{}), state: map[string]*object.Object{}, fail: func(string) error {
		return nil
	}}
}

func (r *recorder) write(what string, rv uint64, change func()) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	err := r.fail(what)
	if err == nil {
		change()
		r.rv = rv
	} else {
		what = "refused " + what
	}
	r.log = append(r.log, what)
	close(r.wake)
	r.wake = make(chan struct{})
	return err
}

func (r *recorder) Replace(objects []*object.Object, rv uint64) error {
	keys := make([]string, 0, len(objects))
	state := map[string]*object.Object{}
	for _, o := range objects {
		keys = append(keys, o.Key)
		state[o.Key] = o
	}
	slices.Sort(keys)
	return r.write(fmt.Sprintf("replace %d [%s]", rv, strings.Join(keys, " ")), rv, func() { r.state = state })
}

func (r *recorder) Add(o *object.Object) error {
	return r.write(fmt.Sprintf("add %s %d", o.Key, o.RV), o.RV, func() { r.state[o.Key] = o })
}

func (r *recorder) Update(o *object.Object) error {
	return r.write(fmt.Sprintf("update %s %d", o.Key, o.RV), o.RV, func() { r.state[o.Key] = o })
}

func (r *recorder) Delete(o *object.Object) error {
	return r.write(fmt.Sprintf("delete %s %d", o.Key, o.RV), o.RV, func() { delete(r.state, o.Key) })
}

func (r *recorder) Bookmark(b *object.Bookmark, rv uint64) error {
	return r.write(fmt.Sprintf("bookmark %s", b.Append(nil, rv, false)), rv, func() {})
}

// await waits until cond, called with the log so far, is true.
func (r *recorder) await(t *testing.T, what string, cond func(log []string) bool) {
	t.Helper()
	ctx := deadline(t)
	for {
		r.mu.Lock()
		done, wake, seen := cond(r.log), r.wake, slices.Clone(r.log)
		r.mu.Unlock()
		if done {
			return
		}
		select {
		case <-wake:
		case <-ctx.Done():
			t.Fatalf("%s: never came; the Sink was told\n%s", what, strings.Join(seen, "\n"))
		}
	}
}

// awaitEntry waits for an entry, from the nth on, and returns the index after it.
func (r *recorder) awaitEntry(t *testing.T, entry string, from int) int {
	t.Helper()
	at := 0
	r.await(t, entry, func(log []string) bool {
		i := slices.Index(log[min(from, len(log)):], entry)
		at = from + i + 1
		return i >= 0
	})
	return at
}

// awaitState waits until the state is that of the server, byte for byte.
func (r *recorder) awaitState(t *testing.T, s *fakeapiserver.Server, res *object.Resource) {
	t.Helper()
	r.await(t, "upstream's state", func([]string) bool {
		want := s.List(res.GVR)
		if len(want) != len(r.state) {
			return false
		}
		for _, o := range want {
			if got := r.state[o.Key]; got == nil || got.RV != o.RV || string(got.JSON()) != string(o.Raw) {
				return false
			}
		}
		return true
	})
}

// mirror runs a Reflector until the test ends.
func mirror(t *testing.T, c *Client, res *object.Resource, sink Sink, opts ...Option) *Reflector {
	t.Helper()
	opts = append([]Option{WithPauses(time.Millisecond, 10*time.Millisecond)}, opts...)
	r := NewReflector(c, res, sink, opts...)
	running(t, r)
	return r
}

// running runs a Reflector until the test ends.
func running(t *testing.T, r *Reflector) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != context.Canceled {
			t.Errorf("Run ended with %v", err)
		}
	})
}
