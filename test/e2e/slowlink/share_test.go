package slowlink

import (
	"context"
	"crypto/tls"
	"net/http"
	"strings"
	"testing"

	"spillway/internal/fakeapiserver"
	"spillway/test/framework/process"
)

// What no other user wants one may have: 2,500 watches of one user within a budget of 64 MiB, of
// which a share would be 2,048. The rest is refused while an eighth remains for others, and the log
// says at the start what the limits are.
func TestOneUserMayHaveMoreThanAShare(t *testing.T) {
	up := fakeapiserver.New(fakeapiserver.Options{ProofDelay: 0})
	t.Cleanup(up.Close)
	up.Create(fakeapiserver.ConfigMaps, "n", "a")
	p := process.StartProxy(t, process.BuildProxy(t), "--kubeconfig="+kubeconfig(t, up), "--resources=configmaps",
		"--listen-tls=127.0.0.1:0", "--insecure-allow-all",
		"--memory-budget=64Mi", "--log-level=info")
	transport := &http.Transport{ForceAttemptHTTP2: true,
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}} //nolint:gosec // its own
	ctx, leave := context.WithCancel(t.Context())
	t.Cleanup(transport.CloseIdleConnections)
	t.Cleanup(leave)
	const all, free = 4096, 512
	codes := map[int]int{}
	for i := range all {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet,
			p.TLS+"/api/v1/configmaps?watch=1&resourceVersion=1&timeoutSeconds=600", nil)
		if err != nil {
			t.Fatal(err)
		}
		response, err := transport.RoundTrip(r)
		if err != nil {
			t.Fatalf("watch %d: %v", i, err)
		}
		if codes[response.StatusCode]++; response.StatusCode != http.StatusOK {
			_ = response.Body.Close()
			break
		}
	}
	if codes[http.StatusOK] != all-free || codes[http.StatusTooManyRequests] != 1 {
		t.Errorf("answered %v, want %d watches and then 429", codes, all-free)
	}
	for _, limit := range []string{`"max-watches":4096`, `"max-watches-per-user":2048`, `"watchesReserve":512`,
		`"max-connections":1024`} {
		if !strings.Contains(string(p.Log.Text()), limit) {
			t.Errorf("the log does not say %s", limit)
		}
	}
}
