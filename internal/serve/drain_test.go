package serve

import (
	"context"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"spillway/internal/fakeapiserver"
	"spillway/internal/fakeapiserver/rawclient"
	"spillway/internal/object"
	"spillway/internal/watch"
)

// Draining ends streams one after another, each after a bookmark, takes no new ones, and answers
// everything else meanwhile (D14).
func TestADrainEndsEachStreamAfterABookmark(t *testing.T) { eachWay(t, testDrain) }

func testDrain(t *testing.T, goroutines bool) {
	t.Parallel()
	r := newRig(t, rigOptions{goroutines: goroutines, mirrors: []*object.Resource{configMaps}})
	r.up.Create(fakeapiserver.ConfigMaps, "n", "a")
	r.mirrored(configMaps)
	const n = 10
	var mu sync.Mutex
	var ends []time.Time
	var all []*rawclient.Watcher
	var waiting sync.WaitGroup
	for range n {
		w := r.watch(mapsPath + "?watch=1&resourceVersion=1&allowWatchBookmarks=1")
		all = append(all, w)
	}
	for _, w := range all {
		expect(t, w, "ADDED n/a 2")
		waiting.Go(func() {
			_, _ = w.Wait(deadline(t)) // looked at below
			mu.Lock()
			defer mu.Unlock()
			ends = append(ends, time.Now())
		})
	}
	const period = time.Second
	began := time.Now()
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		r.server.Drain(deadline(t), period)
	}()
	eventually(t, "the first end", func() bool {
		return r.metric("spillway_watch_terminations_total", "reason="+string(watch.EndDrain), "resource=configmaps") >= 1
	})
	if list := r.list(mapsPath + "?watch=1&resourceVersion=0"); list.Status != http.StatusServiceUnavailable ||
		list.Failure == nil {
		t.Errorf("a new watch: %d %s", list.Status, list.Body)
	}
	if list := r.list(mapsPath + "?resourceVersion=0"); list.Status != http.StatusOK || len(list.Items) != 1 {
		t.Errorf("a list: %d %s", list.Status, list.Body)
	}
	waiting.Wait()
	<-drained
	for i, end := range ends { // the first at once, then one after another: on a slow machine later, never sooner
		if least := period * 9 / 10 / n * time.Duration(i); end.Sub(began) < least {
			t.Errorf("end %d after %v, not before %v", i, end.Sub(began), least)
		}
	}
	for _, w := range all {
		over(t, w, rawclient.Ended)
		if events := w.Events(); len(events) != 2 || events[1].String() != "BOOKMARK 2" {
			t.Errorf("got %v", events)
		}
	}
	r.ended(configMaps, watch.EndDrain, n)
}

// Draining does not wait beyond its deadline for a client that does not read; Close then resets the
// connection.
func TestDrainOfAStalledClient(t *testing.T) { eachWay(t, testDrainOfAStalledClient) }

func testDrainOfAStalledClient(t *testing.T, goroutines bool) {
	r := newRig(t, rigOptions{goroutines: goroutines, mirrors: []*object.Resource{configMaps}})
	// more than the kernel takes for a client that does not read
	r.up.Create(fakeapiserver.ConfigMaps, "n", "large", fakeapiserver.WithPadding(8<<20))
	r.mirrored(configMaps)
	answer := stalling(t, r.url+mapsPath+"?watch=1&resourceVersion=1", 4096)
	if _, err := io.ReadFull(answer, make([]byte, 1000)); err != nil { // what is on its way now cannot arrive
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	r.server.Drain(ctx, time.Nanosecond)
	if ctx.Err() == nil {
		t.Error("a stream that cannot end has ended")
	}
	r.close()
	if n := r.metric("spillway_watch_terminations_total", "reason=aborted", "resource=configmaps"); n != 1 {
		t.Errorf("%v streams were aborted", n)
	}
	if _, err := io.Copy(io.Discard, answer); err == nil {
		t.Error("the client was told of an end")
	}
}

// stalling returns the answer to a GET, for a client that reads only what the test reads and has a
// receive buffer of about so many bytes.
func stalling(t *testing.T, url string, buffer int) io.ReadCloser {
	t.Helper()
	dialer := net.Dialer{Timeout: patience}
	client := &http.Client{Transport: &http.Transport{ReadBufferSize: 4096,
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := dialer.DialContext(ctx, network, address)
			if err != nil {
				return nil, err
			}
			return conn, conn.(*net.TCPConn).SetReadBuffer(buffer)
		}}}
	req, err := http.NewRequestWithContext(deadline(t), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = resp.Body.Close()
		client.CloseIdleConnections()
	})
	return resp.Body
}

// With nothing to end, draining takes no time.
func TestDrainOfNothing(t *testing.T) {
	r := newRig(t, rigOptions{mirrors: []*object.Resource{configMaps}})
	r.server.Drain(deadline(t), time.Hour)
}
