package inject

import (
	"context"
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"spillway/test/framework/process"
)

// fitsQuota: a namespace whose ResourceQuota has limits.cpu refuses a pod with a sidecar that has
// none, and takes one whose sidecar has one by its annotation, by a flag of inject or by the
// webhook's.
func (c *cluster) fitsQuota(t *testing.T) {
	const team, refusal = "team", "must specify limits.cpu for: spillway"
	_, err := c.Kubectl(t.Context(), "create", "namespace", team)
	must(t, err)
	_, err = c.Kubectl(t.Context(), "create", "serviceaccount", "default", "--namespace="+team)
	must(t, err)
	hard := corev1.ResourceList{corev1.ResourceLimitsCPU: resource.MustParse("1")}
	quota, err := c.client.CoreV1().ResourceQuotas(team).Create(t.Context(), &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Name: "cpu"}, Spec: corev1.ResourceQuotaSpec{Hard: hard},
	}, metav1.CreateOptions{})
	must(t, err)
	// as the controller would
	quota.Status = corev1.ResourceQuotaStatus{Hard: hard,
		Used: corev1.ResourceList{corev1.ResourceLimitsCPU: resource.MustParse("0")}}
	_, err = c.client.CoreV1().ResourceQuotas(team).UpdateStatus(t.Context(), quota, metav1.UpdateOptions{})
	must(t, err)

	apply := func(pod string) error {
		_, err := c.KubectlInput(t.Context(), pod, "create", "--dry-run=server", "-f=-")
		return err
	}
	pod := func(metadata string) string {
		return "apiVersion: v1\nkind: Pod\nmetadata:\n  name: app\n  namespace: " + team + metadata +
			"\nspec:\n  containers:\n  - name: app\n    image: app\n    resources: {limits: {cpu: 100m}}\n"
	}
	process.Awaiting(t, "the quota", func(context.Context) error { // which kube-apiserver learns by a watch
		err := apply(c.run(t, pod(""), "inject", "--image=spillway:1"))
		if err == nil {
			return errors.New("it is not there yet")
		}
		if !strings.Contains(err.Error(), refusal) {
			t.Fatal(err)
		}
		return nil
	})
	if err := apply(c.run(t, pod(""), "inject", "--image=spillway:1", "--cpu-limit=200m")); err != nil {
		t.Errorf("with a flag: %v", err)
	}
	if err := apply(c.run(t, pod("\n  annotations: {spillway.example.com/cpu-limit: 200m}"), "inject",
		"--image=spillway:1")); err != nil {
		t.Errorf("with an annotation: %v", err)
	}
	if err := apply(c.run(t, pod(""), "inject", "--image=spillway:1", "--cpu-limit=2")); err == nil ||
		!strings.Contains(err.Error(), "exceeded quota") {
		t.Errorf("with more than there is: %v", err)
	}
	w := c.startWebhook(t, "--cpu-limit=200m")
	c.register(t, w)
	process.Awaiting(t, "kube-apiserver to know the webhook", func(ctx context.Context) error {
		made, err := c.KubectlInput(ctx, pod("\n  labels: {spillway.example.com/inject: enabled}"), "create",
			"--dry-run=server", "--output=yaml", "-f=-")
		must(t, err)
		if !strings.Contains(made, "spillway.example.com/injected") {
			return errors.New("not yet")
		}
		if !strings.Contains(made, "cpu: 200m") {
			t.Errorf("the sidecar has no limit: %s", made)
		}
		return nil
	})
}
