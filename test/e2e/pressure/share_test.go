package pressure

import (
	"context"
	"crypto/tls"
	"net/http"
	"testing"

	"spillway/internal/fakeapiserver"
	"spillway/test/framework/process"
)

// A user may exceed the default share (2,048 of 4,096) while more than an eighth of all watches is
// free.
func TestOneUserMayHaveMoreThanAShare(t *testing.T) {
	const (
		maxWatches = 4096 // by a budget of 64 MiB
		reserve    = maxWatches / 8
	)
	up := fakeapiserver.New(fakeapiserver.Options{})
	t.Cleanup(up.Close)
	up.Create(fakeapiserver.ConfigMaps, "n", "a")
	p := process.StartProxy(t, process.BuildProxy(t), "--kubeconfig="+kubeconfig(t, up), "--resources=configmaps",
		"--listen-tls=127.0.0.1:0", "--insecure-allow-all", "--memory-budget=64Mi", "--log-level=info")
	transport := &http.Transport{ForceAttemptHTTP2: true,
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}} //nolint:gosec // its own
	t.Cleanup(transport.CloseIdleConnections)
	ctx, cancel := context.WithTimeout(t.Context(), 2*process.Patience)
	t.Cleanup(cancel) // ends the watches
	watch := func(i int) (code int) {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet,
			p.TLS+"/api/v1/configmaps?watch=1&resourceVersion=1&timeoutSeconds=600", nil)
		if err != nil {
			t.Fatal(err)
		}
		response, err := transport.RoundTrip(r)
		if err != nil {
			t.Fatalf("watch %d: %v", i, err)
		}
		if response.StatusCode != http.StatusOK {
			_ = response.Body.Close()
		}
		return response.StatusCode
	}
	for i := range maxWatches - reserve {
		if code := watch(i); code != http.StatusOK {
			t.Fatalf("watch %d is answered with %d", i, code)
		}
	}
	if code := watch(maxWatches - reserve); code != http.StatusTooManyRequests {
		t.Errorf("a watch of the reserve is answered with %d, want %d", code, http.StatusTooManyRequests)
	}
}
