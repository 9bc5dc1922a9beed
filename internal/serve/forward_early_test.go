package serve

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"

	"spillway/internal/passthrough"
)

// Upstream refuses a body before it has read it, and the client stops sending when it sees that.
// The refusal must still arrive whole, without a wait for the rest of the body.
func TestAnEarlyRefusalArrivesWhole(t *testing.T) {
	t.Parallel()
	upstream := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusForbidden)
		_, _ = io.WriteString(w, "no")
	}))
	upstream.EnableHTTP2 = true
	upstream.StartTLS()
	t.Cleanup(upstream.Close)
	base, err := url.Parse(upstream.URL)
	if err != nil {
		t.Fatal(err)
	}
	fr := newFront(t, http.NotFoundHandler(), frontOptions{http2: true, mutate: func(o *passthrough.ForwarderOptions) {
		o.Base, o.Client = base, all(upstream.Client().Transport)
	}})
	client, body := fr.client(t), bytes.Repeat([]byte("x"), 2*passthrough.OwnedBodyLimit)
	for range 100 { // what has been sent when the refusal comes is up to chance
		request, err := http.NewRequestWithContext(deadline(t), http.MethodPost, fr.url()+"/api/v1/namespaces/a/configmaps",
			bytes.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		response, err := client.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := io.ReadAll(response.Body)
		_ = response.Body.Close()
		if err != nil || response.StatusCode != http.StatusForbidden || string(answer) != "no" {
			t.Fatalf("%d %q, %v", response.StatusCode, answer, err)
		}
	}
}
