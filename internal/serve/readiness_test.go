package serve

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
)

// A balancer that brings no credentials hears whether this proxy is ready, and upstream is not
// asked; all else at that path is upstream's.
func TestReadinessOnMainListenersAsksNothing(t *testing.T) {
	var ready atomic.Value // a func() error
	ready.Store(func() error { return nil })
	r := newRig(t, rigOptions{access: true, ready: func() error { return ready.Load().(func() error)() }})
	ask := func(client *http.Client, method, target string) (int, string) {
		t.Helper()
		request, err := http.NewRequestWithContext(t.Context(), method, target, nil)
		if err != nil {
			t.Fatal(err)
		}
		response, err := client.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		if err != nil {
			t.Fatal(err)
		}
		return response.StatusCode, string(body)
	}
	asked := func() (n int) {
		for _, request := range r.up.Requests() {
			if strings.Contains(request.Path, "spillway") || strings.Contains(request.Path, "reviews") {
				n++
			}
		}
		return n
	}
	for base, client := range map[string]*http.Client{r.url: http.DefaultClient, r.tlsURL: overHTTP2(t, 1<<20)} {
		before := asked()
		ready.Store(func() error { return nil })
		if code, body := ask(client, http.MethodGet, base+ReadinessPath); code != 200 || body != "ok" {
			t.Errorf("%s: %d %q", base, code, body)
		}
		ready.Store(func() error { return errors.New("a secret of this replica") })
		if code, body := ask(client, http.MethodGet, base+ReadinessPath+"?verbose"); code != 500 || body != "not ready\n" {
			t.Errorf("%s: %d %q", base, code, body)
		}
		if code, body := ask(client, http.MethodHead, base+ReadinessPath); code != 500 || body != "" {
			t.Errorf("%s: HEAD: %d %q", base, code, body)
		}
		if n := asked(); n != before {
			t.Errorf("%s: upstream was asked %d times", base, n-before)
		}
		for _, c := range [][2]string{{http.MethodPost, ReadinessPath}, {http.MethodGet, ReadinessPath + "/x"},
			{http.MethodGet, "/spillway"}} {
			if code, _ := ask(client, c[0], base+c[1]); code != http.StatusNotFound {
				t.Errorf("%s: %s %s: %d", base, c[0], c[1], code)
			}
		}
	}
}
