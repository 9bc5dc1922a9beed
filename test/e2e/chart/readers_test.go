package chart

import (
	"context"
	"fmt"
	"net/http"
	"testing"

	"spillway/test/framework/process"
)

// A user that may read metrics may not read the status page, nor the other way round, and without
// the rule that permits it no user may.
func TestMetricsAndStatusReadersAreSeparate(t *testing.T) {
	cp := startControlPlane(t)
	manifest, err := newHelm(t).template(t.Context(), "--set=resources={configmaps},config.memoryBudget=1Gi",
		`--set-json=rbac.metricsReaders=[{"kind":"ServiceAccount","name":"scraper","namespace":"`+namespace+`"}]`,
		`--set-json=rbac.statusReaders=[{"kind":"ServiceAccount","name":"operator","namespace":"`+namespace+`"}]`)
	must(t, err)
	_, err = cp.KubectlInput(t.Context(), manifest, "apply", "--server-side", "--force-conflicts", "-f=-")
	must(t, err)
	p := startPod(t, cp, process.BuildProxy(t), objects(t, manifest), tokenOf(t, cp, release))
	process.Awaiting(t, "it to be ready", p.ready)
	tokens := map[string]string{"": "", release: tokenOf(t, cp, release)}
	for _, account := range []string{"scraper", "operator"} {
		grant(t, cp, account, []any{})
		tokens[account] = tokenOf(t, cp, account)
	}
	f := func(account, path string, want int) {
		t.Helper()
		process.Awaiting(t, fmt.Sprintf("%q to be answered %s with %d", account, path, want),
			func(ctx context.Context) error {
				got, _, err := p.get(ctx, p.metrics+path, tokens[account])
				if err == nil && got != want {
					err = fmt.Errorf("%d", got)
				}
				return err
			})
	}
	f("scraper", "/metrics", http.StatusOK)
	f("scraper", "/statusz", http.StatusForbidden)
	f("operator", "/statusz", http.StatusOK)
	f("operator", "/statusz?format=json", http.StatusOK)
	f("operator", "/metrics", http.StatusForbidden)
	f(release, "/statusz", http.StatusForbidden)
	f("", "/statusz", http.StatusUnauthorized)
	_, err = cp.Kubectl(t.Context(), "patch", "clusterrole", namespace+":"+release+":status", "--type=json",
		`--patch=[{"op":"remove","path":"/rules/0"}]`)
	must(t, err)
	f("operator", "/statusz", http.StatusForbidden)
	f("scraper", "/metrics", http.StatusOK)
}
