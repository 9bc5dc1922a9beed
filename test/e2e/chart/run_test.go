package chart

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"spillway/test/framework/controlplane"
	"spillway/test/framework/process"
)

// mirrored are resources of all sorts, with the path of each.
var mirrored = map[string]string{
	"configmaps":             "/api/v1/namespaces/default/configmaps",
	"pods":                   "/api/v1/namespaces/default/pods",
	"deployments.apps":       "/apis/apps/v1/namespaces/default/deployments",
	"widgets.v1.example.com": "/apis/example.com/v1/namespaces/default/widgets",
}

// What the chart renders, run as it says with the rights that it gives, serves clients from memory
// under its certificate. Without any one of these rights it does not, or says what it cannot do.
func TestEachRenderedRightIsNeeded(t *testing.T) {
	cp := startControlPlane(t)
	h := newHelm(t)
	program := process.BuildProxy(t)
	for name, values := range map[string][]string{
		// in a container its limit is known
		"defaults": {"--set=mirror.resources={configmaps,pods,deployments.apps,widgets.v1.example.com}",
			"--set=config.memoryBudget=1Gi"},
		"watched rights": {"--set=mirror.resources={configmaps,pods,deployments.apps,widgets.v1.example.com}",
			"--set=config.authenticationLocalJWKS=unbound,config.apiAudiences={https://kubernetes.default.svc}",
			"--set=config.memoryBudget=1Gi"},
	} {
		t.Run(name, func(t *testing.T) {
			manifest, err := h.template(t.Context(), values...)
			must(t, err)
			_, err = cp.KubectlInput(t.Context(), manifest, "apply", "--server-side", "--force-conflicts", "-f=-")
			must(t, err)
			all := objects(t, manifest)
			t.Run("all", func(t *testing.T) {
				p := startPod(t, cp, program, all, tokenOf(t, cp, release))
				process.Awaiting(t, "it to be ready", p.ready)
				process.Awaiting(t, "all to be served from memory", func(ctx context.Context) error { return p.broken(ctx, cp) })
			})
			role := pick(t, all, "ClusterRole", namespace+":"+release)
			rules, _, err := unstructured.NestedSlice(role.Object, "rules")
			must(t, err)
			for i, rule := range rules {
				resources, _, err := unstructured.NestedStringSlice(rule.(map[string]any), "resources")
				must(t, err)
				t.Run("without "+strings.Join(resources, ","), func(t *testing.T) {
					t.Parallel()
					account := fmt.Sprintf("%s-without-%d", strings.ReplaceAll(name, " ", "-"), i)
					grant(t, cp, account, slices.Delete(slices.Clone(rules), i, i+1))
					p := startPod(t, cp, program, all, tokenOf(t, cp, account))
					var sign error
					process.Awaiting(t, "a sign that a right is missing", func(ctx context.Context) error {
						if sign = p.missing(ctx, cp, resources); sign == nil {
							return fmt.Errorf("none yet")
						}
						return nil
					})
					t.Log(sign)
				})
			}
		})
	}
}

// The audit log is on standard output, if it is nowhere else, with what the policy wants of it; and
// spans are for a collector that is away.
func TestAuditLogIsOnStandardOutput(t *testing.T) {
	cp := startControlPlane(t)
	manifest, err := newHelm(t).template(t.Context(),
		"--set=mirror.resources={configmaps},config.memoryBudget=1Gi,tracing.endpoint=127.0.0.1:1",
		`--set-json=audit={"policy":{"rules":[{"level":"Metadata"}],"omitStages":["RequestReceived"]},"failClosed":true}`)
	must(t, err)
	_, err = cp.KubectlInput(t.Context(), manifest, "apply", "--server-side", "--force-conflicts", "-f=-")
	must(t, err)
	p := startPod(t, cp, process.BuildProxy(t), objects(t, manifest), tokenOf(t, cp, release))
	process.Awaiting(t, "it to be ready", p.ready)
	process.Awaiting(t, "an answer from memory", func(ctx context.Context) error {
		status, fromMemory, err := p.get(ctx, p.api+mirrored["configmaps"]+"?resourceVersion=0",
			cp.Config(controlplane.Admin).BearerToken)
		if err == nil && (status != http.StatusOK || !fromMemory) {
			err = fmt.Errorf("%d, from memory: %t", status, fromMemory)
		}
		return err
	})
	text := string(p.log.Text())
	if !strings.Contains(text, `{"kind":"Event","apiVersion":"audit.k8s.io/v1","level":"Metadata"`) ||
		strings.Contains(text, `"stage":"RequestReceived"`) {
		t.Errorf("no such event: %s", text)
	}
}

// missing is how it shows that it may not do something with resources; nil if it does not.
func (p *pod) missing(ctx context.Context, cp *controlplane.ControlPlane, resources []string) error {
	if slices.Contains(resources, "tokenreviews") || slices.Contains(resources, "subjectaccessreviews") {
		if p.ready(ctx) != nil {
			return nil // so that it is not for want of a mirror
		}
		return p.broken(ctx, cp)
	}
	log := string(p.log.Text())
	for _, resource := range resources {
		if !strings.Contains(log, `cannot list resource \"`+resource+`\"`) {
			return nil
		}
	}
	return fmt.Errorf("it says that it cannot list %s", strings.Join(resources, ", "))
}

// broken is what a client does not get from memory; nil if nothing. It requests it with a token of
// its own, which the proxy has not seen before.
func (p *pod) broken(ctx context.Context, cp *controlplane.ControlPlane) error {
	for name, path := range mirrored {
		status, fromMemory, err := p.get(ctx, p.api+path+"?resourceVersion=0", cp.Config(controlplane.Admin).BearerToken)
		switch {
		case err != nil:
			return fmt.Errorf("%s: %w", name, err)
		case status != http.StatusOK || !fromMemory:
			return fmt.Errorf("%s: %d, from memory: %t", name, status, fromMemory)
		}
	}
	return nil
}

// grant makes a service account with these rules.
func grant(t *testing.T, cp *controlplane.ControlPlane, account string, rules []any) {
	t.Helper()
	text, err := json.Marshal(map[string]any{"apiVersion": "v1", "kind": "List", "items": []any{
		map[string]any{"apiVersion": "v1", "kind": "ServiceAccount",
			"metadata": map[string]any{"name": account, "namespace": namespace}},
		map[string]any{"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
			"metadata": map[string]any{"name": account}, "rules": rules},
		map[string]any{"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
			"metadata": map[string]any{"name": account},
			"roleRef":  map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": account},
			"subjects": []any{map[string]any{"kind": "ServiceAccount", "name": account, "namespace": namespace}}},
	}})
	must(t, err)
	_, err = cp.KubectlInput(t.Context(), string(text), "create", "-f=-")
	must(t, err)
}

func tokenOf(t *testing.T, cp *controlplane.ControlPlane, account string) string {
	t.Helper()
	token, err := cp.Kubectl(t.Context(), "create", "token", account, "--namespace="+namespace)
	must(t, err)
	return strings.TrimSpace(token)
}

// A generated certificate stays as it is until it is old or for other names; what clients trust
// stays in any case.
func TestCertificateIsKept(t *testing.T) {
	cp := startControlPlane(t)
	h := newHelm(t)
	h.kubeconfig = cp.Kubeconfig(controlplane.Admin)
	upgrade := func(values ...string) (ca string, leaf *x509.Certificate) {
		t.Helper()
		_, err := h.run(t.Context(),
			append([]string{"upgrade", "--install", "--force-conflicts", release, h.chart, "--namespace=" + namespace},
				values...)...)
		must(t, err)
		text, err := cp.Kubectl(t.Context(), "get", "secret", release+"-tls", "--namespace="+namespace, "--output=json")
		must(t, err)
		secret := decoded(t, objects(t, text)[0])
		block, _ := pem.Decode([]byte(secret["tls.crt"]))
		leaf, err = x509.ParseCertificate(block.Bytes)
		must(t, err)
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM([]byte(secret["ca.crt"]))
		if _, err := leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: serverName}); err != nil {
			t.Fatal(err)
		}
		return secret["ca.crt"], leaf
	}
	ca, first := upgrade()
	if _, again := upgrade(); !again.Equal(first) {
		t.Error("another certificate without need")
	}
	ca2, named := upgrade("--set=tls.extraNames={proxy.example.com}")
	if err := named.VerifyHostname("proxy.example.com"); err != nil || ca2 != ca {
		t.Errorf("%v; same CA: %t", err, ca2 == ca)
	}
	_, err := cp.Kubectl(t.Context(), "annotate", "--overwrite", "--namespace="+namespace, "secret", release+"-tls",
		"spillway.example.com/renew-after=1")
	must(t, err)
	ca3, renewed := upgrade("--set=tls.extraNames={proxy.example.com}")
	if renewed.Equal(named) || ca3 != ca {
		t.Errorf("renewed: %t, same CA: %t", !renewed.Equal(named), ca3 == ca)
	}
}
