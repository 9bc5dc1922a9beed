package outage

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"spillway/test/framework/controlplane"
	"spillway/test/framework/process"
)

// freeAddress is one without a listener.
func freeAddress(t *testing.T) string {
	t.Helper()
	port, err := controlplane.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("127.0.0.1:%d", port)
}

// The proxy starts first, then informers, then etcd and the API server, which forbids everything
// until it has read its rules. Neither the proxy nor an informer ends, and all have what there is.
func TestProxyStartsBeforeAPIServer(t *testing.T) {
	w, args := newUpstream(t)
	w.cp.APIServer().Kill()
	w.cp.StopEtcd()
	plain, metrics := freeAddress(t), freeAddress(t)
	w.proxy = process.LaunchProxy(t, process.BuildProxy(t),
		append(args, "--listen="+plain, "--metrics-listen="+metrics)...)
	w.proxy.Plain, w.proxy.Metrics = "http://"+plain, "http://"+metrics
	process.Awaiting(t, "the proxy to live", func(ctx context.Context) error {
		return process.ExpectOK(ctx, w.proxy.Metrics+"/livez")
	})
	if err := process.ExpectOK(t.Context(), w.proxy.Metrics+"/readyz"); err == nil ||
		!strings.Contains(err.Error(), "cannot be reached") {
		t.Errorf("readiness: %v", err)
	}
	for target, want := range map[string]int{ofAnyAge: http.StatusServiceUnavailable, configMaps +
		"?watch=1&resourceVersion=5": http.StatusTooManyRequests} {
		if a := w.ask(http.MethodGet, target, ""); a.code != want {
			t.Errorf("%s: %d %s", target, a.code, a.body)
		}
	}
	for range clients {
		s, _ := informing(t, w.proxy)
		w.all = append(w.all, s)
	}
	process.Awaiting(t, "informers to have asked", func(context.Context) error {
		for _, s := range w.all {
			if s.started() == 0 {
				return fmt.Errorf("one has not")
			}
		}
		return nil
	})
	if err := w.cp.StartEtcd(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := w.cp.StartAPIServer(t.Context()); err != nil {
		t.Fatal(err)
	}
	there := time.Now()
	w.proxy.AwaitReady(t)
	ready := time.Since(there)
	took := awaitAll(t, w.all, "before", there)
	asked := 0
	for _, s := range w.all {
		asked += s.started()
	}
	t.Logf("the API server is there: the proxy is ready after %.2f s, all %d informers have what there is after %.2f s; "+
		"they have asked %d times",
		ready.Seconds(), len(w.all), took.Seconds(), asked)
	w.awaitCurrent("after", time.Now())
}
