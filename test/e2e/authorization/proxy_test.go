package authorization

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"spillway/test/framework/controlplane"
	"spillway/test/framework/process"
)

// TestProxyWatchesRights has a proxy decide by what it watches: a client with a token and a role is
// answered from memory without a review, and its watch ends as soon as its binding has gone, long
// before the sweep.
func TestProxyWatchesRights(t *testing.T) {
	w := newWorld(t)
	w.populate(t)
	proxy := process.StartProxy(t, process.BuildProxy(t), "--kubeconfig="+w.cp.Kubeconfig(controlplane.Admin),
		"--resources=pods", "--listen-tls=127.0.0.1:0",
		"--api-audiences="+apiAudience, "--authorization-local-rbac", "--authentication-local-jwks=pods",
		"--reauthorization-interval=10m")
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	defer client.CloseIdleConnections()
	ask := func(ctx context.Context, query string) *http.Response {
		i := 0
		for w.people[i].name != "reads-pods" {
			i++
		}
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, proxy.TLS+"/api/v1/namespaces/default/pods?"+query, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header = w.people[i].shows.Header
		resp, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		return resp
	}
	answers := func(review string) int {
		return process.Metric(t, proxy.Metrics, fmt.Sprintf(`spillway_reviews_total{review=%q,source="local"`, review))
	}
	await(t, "decided by the proxy", func() bool {
		resp := ask(t.Context(), "resourceVersion=0")
		resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			t.Fatalf("answered %s", resp.Status)
		}
		return answers("access") > 0 && answers("token") > 0
	})
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	watch := ask(ctx, "watch=1&resourceVersion=0")
	defer watch.Body.Close()
	time.Sleep(time.Second) // it is admitted when its head has been sent
	left := time.Now()
	if err := w.admin.RbacV1().RoleBindings("default").Delete(ctx, "reads-pods", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	for lines := bufio.NewScanner(watch.Body); lines.Scan(); {
		t.Logf("told: %.100s", lines.Text())
	}
	if ctx.Err() != nil {
		t.Fatalf("still watches after %v", patience)
	}
	t.Logf("the watch ended %v after its binding had gone", time.Since(left))
	await(t, "refused", func() bool { // a review for a LIST is cached for a moment
		resp := ask(t.Context(), "resourceVersion=0")
		resp.Body.Close()
		return resp.StatusCode == http.StatusForbidden
	})
	t.Logf("a LIST was refused %v after it", time.Since(left))
	if n := process.Metric(t, proxy.Metrics, "spillway_local_decision_disagreements_total"); n != 0 {
		t.Errorf("%d disagreements", n)
	}
}
