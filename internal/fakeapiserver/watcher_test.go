package fakeapiserver

import (
	"bytes"
	"io"
	"net/http"
	"testing"
)

func TestWatcherEnds(t *testing.T) {
	const event = `{"type":"ADDED","object":{"metadata":{"name":"a","resourceVersion":"7"}}}` + "\n"
	for reason, body := range map[EndReason]string{
		Ended:        event,
		Unterminated: event + `{"type":`,
		Unparsable:   event + "nonsense\n",
	} {
		t.Run(string(reason), func(t *testing.T) {
			s := server(t, Options{})
			s.Handle("/stream", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				_, _ = io.WriteString(w, body)
			}))
			w := watch(t, s, "/stream")
			expect(t, w, "ADDED a 7")
			end := ends(t, w, reason)
			if _, err := w.Next(deadline(t)); err != error(end) {
				t.Errorf("Next after the end: %v", err)
			}
			if known, ok := IsEnd(end); !ok || known.Status != 200 {
				t.Errorf("end: %v", end)
			}
		})
	}
}

func TestWatcherStalls(t *testing.T) {
	s := server(t, Options{})
	w := watch(t, s, "/api/v1/configmaps?watch=1&resourceVersion=1")
	other := watch(t, s, "/api/v1/configmaps?watch=1&resourceVersion=1")
	w.Stall()
	w.Stall()
	s.Create(ConfigMaps, "n", "a")
	expect(t, other, "ADDED n/a 2")
	if seen := w.Events(); len(seen) > 0 {
		t.Errorf("a stalled client recorded %v", seen)
	}
	w.Resume()
	w.Resume()
	expect(t, w, "ADDED n/a 2")
	if raw := other.Events()[0].Line; !bytes.Equal(raw, w.Events()[0].Line) {
		t.Errorf("two clients, two events: %s %s", raw, w.Events()[0].Line)
	}
	w.Stall()
	w.Close()
	ends(t, w, Cancelled)
}
