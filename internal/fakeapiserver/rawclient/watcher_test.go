package rawclient_test

import (
	"bytes"
	"io"
	"net/http"
	"testing"

	"go.uber.org/goleak"

	"spillway/internal/fakeapiserver"
	"spillway/internal/fakeapiserver/rawclient"
	"spillway/internal/testutil"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var deadline = testutil.Deadline

func watch(t *testing.T, s *fakeapiserver.Server, path string) *rawclient.Watcher {
	t.Helper()
	w := rawclient.Watch(deadline(t), s.URL, path)
	t.Cleanup(w.Close)
	if _, _, err := w.Head(deadline(t)); err != nil {
		t.Fatalf("watch %s: %v", path, err)
	}
	return w
}

// next compares the next event with its String form.
func next(t *testing.T, w *rawclient.Watcher, want string) {
	t.Helper()
	if e, err := w.Next(deadline(t)); err != nil || e.String() != want {
		t.Fatalf("want %q, got %q, %v", want, e, err)
	}
}

func ends(t *testing.T, w *rawclient.Watcher, want rawclient.Ending) *rawclient.WatchEnd {
	t.Helper()
	end, err := w.Wait(deadline(t))
	if err != nil || end.Reason != want {
		t.Fatalf("want the stream %s, got %v, %v", want, end, err)
	}
	return end
}

func TestWatcherTellsHowAStreamEnded(t *testing.T) {
	const event = `{"type":"ADDED","object":{"metadata":{"name":"a","resourceVersion":"7"}}}` + "\n"
	for reason, body := range map[rawclient.Ending]string{
		rawclient.Ended:        event,
		rawclient.Unterminated: event + `{"type":`,
		rawclient.Unparsable:   event + "nonsense\n",
	} {
		t.Run(string(reason), func(t *testing.T) {
			s := fakeapiserver.New(fakeapiserver.Options{})
			t.Cleanup(s.Close)
			s.Handle("/stream", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				_, _ = io.WriteString(w, body)
			}))
			w := watch(t, s, "/stream")
			next(t, w, "ADDED a 7")
			end := ends(t, w, reason)
			if _, err := w.Next(deadline(t)); err != error(end) {
				t.Errorf("Next after the end: %v", err)
			}
			if end.Status != 200 {
				t.Errorf("end: %v", end)
			}
		})
	}
}

func TestStalledWatcherRecordsNothing(t *testing.T) {
	s := fakeapiserver.New(fakeapiserver.Options{})
	t.Cleanup(s.Close)
	w := watch(t, s, "/api/v1/configmaps?watch=1&resourceVersion=1")
	other := watch(t, s, "/api/v1/configmaps?watch=1&resourceVersion=1")
	w.Stall()
	w.Stall()
	s.Create(fakeapiserver.ConfigMaps, "n", "a")
	next(t, other, "ADDED n/a 2")
	if seen := w.Events(); len(seen) > 0 {
		t.Errorf("a stalled client recorded %v", seen)
	}
	w.Resume()
	w.Resume()
	next(t, w, "ADDED n/a 2")
	if raw := other.Events()[0].Line; !bytes.Equal(raw, w.Events()[0].Line) {
		t.Errorf("two clients, two events: %s %s", raw, w.Events()[0].Line)
	}
	w.Stall()
	w.Close()
	ends(t, w, rawclient.Cancelled)
}
