package inject

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"spillway/test/framework/controlplane"
	"spillway/test/framework/process"
)

// policy is what a namespace allows.
type policy struct {
	name   string
	labels map[string]string
	ranges []corev1.LimitRangeItem
	quotas []quota
}

// quota is a ResourceQuota with what is used of it.
type quota struct {
	hard, used corev1.ResourceList
	scopes     []corev1.ResourceQuotaScope
}

// amounts reads name=quantity pairs.
func amounts(text string) corev1.ResourceList {
	list := corev1.ResourceList{}
	for _, pair := range strings.Fields(text) {
		name, q, _ := strings.Cut(pair, "=")
		list[corev1.ResourceName(name)] = resource.MustParse(q)
	}
	return list
}

func ofContainer(change func(*corev1.LimitRangeItem)) []corev1.LimitRangeItem {
	item := corev1.LimitRangeItem{Type: corev1.LimitTypeContainer}
	change(&item)
	return []corev1.LimitRangeItem{item}
}

func policies() []policy {
	restricted := map[string]string{"pod-security.kubernetes.io/enforce": "restricted"}
	limits := quota{hard: amounts("limits.cpu=4 limits.memory=4Gi"), used: amounts("limits.cpu=0 limits.memory=0")}
	defaults := ofContainer(func(i *corev1.LimitRangeItem) {
		i.Default, i.DefaultRequest = amounts("cpu=200m memory=200Mi"), amounts("cpu=20m memory=50Mi")
	})
	return []policy{
		{name: "none"},
		{name: "restricted", labels: restricted},
		{name: "default-small", ranges: ofContainer(func(i *corev1.LimitRangeItem) {
			i.Default = amounts("cpu=40m memory=100Mi")
		})},
		{name: "default-cpu-500m", ranges: ofContainer(func(i *corev1.LimitRangeItem) { i.Default = amounts("cpu=500m") })},
		{name: "min-cpu-100m", ranges: ofContainer(func(i *corev1.LimitRangeItem) { i.Min = amounts("cpu=100m") })},
		{name: "max-memory-100mi", ranges: ofContainer(func(i *corev1.LimitRangeItem) { i.Max = amounts("memory=100Mi") })},
		{name: "max-memory-32mi", ranges: ofContainer(func(i *corev1.LimitRangeItem) { i.Max = amounts("memory=32Mi") })},
		{name: "ratio", ranges: ofContainer(func(i *corev1.LimitRangeItem) {
			i.MaxLimitRequestRatio, i.Default, i.DefaultRequest = amounts("cpu=4 memory=1"),
				amounts("cpu=40m memory=64Mi"), amounts("cpu=20m memory=64Mi")
		})},
		{name: "pod-max", ranges: append(defaults,
			corev1.LimitRangeItem{Type: corev1.LimitTypePod, Max: amounts("cpu=1 memory=400Mi")})},
		{name: "pod-min-ratio", ranges: append(defaults, corev1.LimitRangeItem{
			Type: corev1.LimitTypePod, Min: amounts("memory=10Mi"), MaxLimitRequestRatio: amounts("cpu=20 memory=5"),
		})},
		{name: "ephemeral", ranges: ofContainer(func(i *corev1.LimitRangeItem) {
			i.Max, i.DefaultRequest = amounts("ephemeral-storage=1Gi"), amounts("ephemeral-storage=10Mi")
		})},
		{name: "quota-limits", quotas: []quota{limits}},
		{name: "quota-limits-defaults", ranges: defaults, quotas: []quota{limits}},
		{name: "quota-tight", ranges: defaults, quotas: []quota{{hard: amounts("requests.memory=1Gi"),
			used: amounts("requests.memory=850Mi")}}},
		{name: "quota-full", ranges: defaults, quotas: []quota{{hard: amounts("requests.memory=1Gi pods=10"),
			used: amounts("requests.memory=970Mi pods=3")}}},
		{name: "quota-scoped", quotas: []quota{
			{hard: amounts("pods=2"), used: amounts("pods=0"),
				scopes: []corev1.ResourceQuotaScope{corev1.ResourceQuotaScopeBestEffort}},
			{hard: amounts("pods=2 limits.memory=2Gi"), used: amounts("pods=0 limits.memory=0"),
				scopes: []corev1.ResourceQuotaScope{corev1.ResourceQuotaScopeNotBestEffort}},
		}},
		{name: "everything", labels: restricted, quotas: []quota{limits},
			ranges: append(ofContainer(func(i *corev1.LimitRangeItem) {
				i.Default, i.DefaultRequest, i.Min, i.Max = amounts("cpu=200m memory=100Mi"),
					amounts("cpu=20m memory=50Mi"), amounts("cpu=5m memory=10Mi"), amounts("cpu=1 memory=300Mi")
				i.MaxLimitRequestRatio = amounts("cpu=10")
			}), corev1.LimitRangeItem{Type: corev1.LimitTypePod, Max: amounts("cpu=2 memory=1Gi")})},
	}
}

// shapes are pods, by what they are like. Each is what PodSecurity takes for restricted, but for
// the one in its node's network.
func shapes() map[string]func(*corev1.Pod) {
	size := func(requests, limits string) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Spec.Containers[0].Resources = corev1.ResourceRequirements{Requests: amounts(requests), Limits: amounts(limits)}
		}
	}
	guaranteed := size("cpu=20m memory=30Mi", "cpu=20m memory=30Mi")
	projected := func(p *corev1.Pod) {
		p.Spec.AutomountServiceAccountToken = ptr.To(false)
		p.Spec.Volumes = append(p.Spec.Volumes,
			corev1.Volume{Name: "mine",
				VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
					{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token", ExpirationSeconds: ptr.To[int64](600)}},
					{ConfigMap: &corev1.ConfigMapProjection{
						LocalObjectReference: corev1.LocalObjectReference{Name: "kube-root-ca.crt"}}},
					{DownwardAPI: &corev1.DownwardAPIProjection{Items: []corev1.DownwardAPIVolumeFile{{Path: "namespace",
						FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.namespace"}}}}},
				}}}})
		p.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "mine",
			MountPath: "/var/run/secrets/kubernetes.io/serviceaccount", ReadOnly: true}}
	}
	proxied := func(p *corev1.Pod) {
		p.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "HTTPS_PROXY", Value: "http://proxy:3128"},
			{Name: "NO_PROXY", Value: ".svc"}}
	}
	neighbour := func(name string, always bool) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			c := corev1.Container{Name: name, Image: "mesh", SecurityContext: p.Spec.Containers[0].SecurityContext,
				Resources: p.Spec.Containers[0].Resources}
			if always {
				c.RestartPolicy = ptr.To(corev1.ContainerRestartPolicyAlways)
			}
			p.Spec.InitContainers = append(p.Spec.InitContainers, c)
		}
	}
	whole := func(requests, limits string) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Spec.Resources = &corev1.ResourceRequirements{Requests: amounts(requests), Limits: amounts(limits)}
		}
	}
	all := func(changes ...func(*corev1.Pod)) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			for _, change := range changes {
				change(p)
			}
		}
	}
	return map[string]func(*corev1.Pod){
		"01 plain":                  func(*corev1.Pod) {},
		"02 burstable":              size("cpu=10m memory=20Mi", "cpu=40m memory=32Mi"),
		"03 guaranteed":             guaranteed,
		"04 pod-level 100Mi":        whole("memory=100Mi", "memory=100Mi"),
		"05 pod-level limits":       whole("", "cpu=500m memory=100Mi"),
		"06 pod-level guaranteed":   whole("cpu=100m memory=100Mi", "cpu=100m memory=100Mi"),
		"07 automount off":          func(p *corev1.Pod) { p.Spec.AutomountServiceAccountToken = ptr.To(false) },
		"08 account's automount":    func(p *corev1.Pod) { p.Spec.ServiceAccountName = "bare" },
		"09 own token":              projected,
		"10 proxy":                  proxied,
		"11 mesh, native":           neighbour("istio-proxy", true),
		"12 mesh by CNI":            neighbour("istio-validation", false),
		"13 init container":         all(size("cpu=20m memory=20Mi", "cpu=80m memory=30Mi"), neighbour("migrate", false)),
		"14 guaranteed, mesh":       all(guaranteed, neighbour("linkerd-proxy", true)),
		"15 guaranteed, own, proxy": all(guaranteed, projected, proxied, neighbour("istio-proxy", true)),
		"16 pod-level, own, proxy":  all(whole("cpu=50m memory=64Mi", "cpu=100m memory=100Mi"), projected, proxied),
		"17 node's network":         func(p *corev1.Pod) { p.Spec.HostNetwork = true },
	}
}

var asked = map[string]string{"spillway/inject": "enabled"}

// try has kube-apiserver do all for a pod but keep it.
func (w *warningRecorder) try(
	t *testing.T,
	namespace string,
	change func(*corev1.Pod),
	labels map[string]string,
) (*corev1.Pod,
	error) {
	t.Helper()
	w.warnings = nil
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "app", Namespace: namespace, Labels: labels},
		Spec: corev1.PodSpec{
			ServiceAccountName: "default",
			SecurityContext: &corev1.PodSecurityContext{RunAsNonRoot: ptr.To(true), RunAsUser: ptr.To[int64](1000),
				SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}},
			Containers: []corev1.Container{{Name: "app", Image: "app", SecurityContext: &corev1.SecurityContext{
				AllowPrivilegeEscalation: ptr.To(false), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
			}}},
		},
	}
	change(pod)
	return w.CoreV1().Pods(namespace).Create(t.Context(), pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
}

// TestNoPodIsKeptFromBeingCreated: before a real kube-apiserver, every pod that a namespace takes
// without the webhook is taken with it: with a sidecar, or without and with a warning. A Guaranteed
// pod stays Guaranteed.
func TestNoPodIsKeptFromBeingCreated(t *testing.T) {
	c := newCluster(t)
	all := policies()
	for _, p := range all {
		c.apply(t, p)
	}
	c.register(t, c.startWebhook(t))
	client := c.warned(t)
	create := func(namespace string, change func(*corev1.Pod), labels map[string]string) (*corev1.Pod, error) {
		return client.try(t, namespace, change, labels)
	}
	process.Awaiting(t, "kube-apiserver to know the webhook", func(context.Context) error {
		if pod, err := create("none", func(*corev1.Pod) {}, asked); err != nil || len(pod.Spec.InitContainers) != 1 {
			return errors.Join(errors.New("not yet"), err)
		}
		return nil
	})

	var table strings.Builder
	out := tabwriter.NewWriter(&table, 0, 0, 1, ' ', 0)
	counts := map[string]int{}
	found := map[string]string{}
	reasons := map[string]bool{}
	for _, p := range all {
		for name, change := range shapes() {
			without, err := create(p.name, change, nil)
			if err != nil {
				found[name+p.name] = "-" // it is refused as it is
				counts["-"]++
				continue
			}
			with, err := create(p.name, change, asked)
			what := "REFUSED"
			switch {
			case err != nil:
				t.Errorf("%s in %s is refused with the webhook: %v", name, p.name, err)
			case slices.ContainsFunc(with.Spec.InitContainers, func(c corev1.Container) bool { return c.Name == "spillway" }):
				what = "sidecar"
				if without.Status.QOSClass == corev1.PodQOSGuaranteed && with.Status.QOSClass != corev1.PodQOSGuaranteed {
					t.Errorf("%s in %s is %s with a sidecar", name, p.name, with.Status.QOSClass)
				}
			case slices.ContainsFunc(client.warnings, func(text string) bool {
				return strings.HasPrefix(text, "spillway: not injected: ")
			}):
				what = "warned"
				reasons[fmt.Sprintf("%s in %s: %s", name, p.name, client.warnings[0])] = true
			default:
				t.Errorf("%s in %s has no sidecar, and there is no warning: %v", name, p.name, client.warnings)
			}
			found[name+p.name] = what
			counts[what]++
		}
	}
	names := make([]string, 0, len(shapes()))
	for name := range shapes() {
		names = append(names, name)
	}
	slices.Sort(names)
	fmt.Fprint(out, "policy")
	for _, name := range names {
		fmt.Fprint(out, "\t"+name[:2])
	}
	for _, p := range all {
		fmt.Fprint(out, "\n"+p.name)
		for _, name := range names {
			fmt.Fprint(out, "\t"+map[string]string{"sidecar": "S", "warned": "w", "-": "-", "REFUSED": "X"}[found[name+p.name]])
		}
	}
	_ = out.Flush()
	t.Logf("S: with a sidecar, w: without, with a warning, -: refused as it is, X: refused with the webhook\n%s\n%s\n%v",
		&table, strings.Join(names, ", "), counts)
	for reason := range reasons {
		t.Log(reason)
	}
	if counts["sidecar"]+counts["warned"] < 150 || counts["sidecar"] < 100 {
		t.Errorf("%v: that is not the matrix", counts)
	}
	for _, p := range all { // a plain pod has a sidecar wherever one of 64Mi fits
		want := "sidecar"
		if p.name == "max-memory-32mi" || p.name == "quota-full" {
			want = "warned"
		}
		if got := found["01 plain"+p.name]; got != want && got != "-" && p.name != "quota-scoped" {
			t.Errorf("a plain pod in %s: %s, want %s", p.name, got, want)
		}
	}
}

// TestPodsAreCreatedWhileLimitsAreUnknown: a webhook that may not read LimitRanges adds no sidecars
// and says so; it does once it may.
func TestPodsAreCreatedWhileLimitsAreUnknown(t *testing.T) {
	c := newCluster(t)
	c.apply(t, policy{name: "team"})
	c.register(t, c.startWebhook(t, "--kubeconfig="+c.Kubeconfig(controlplane.Alice)))
	client := c.warned(t)
	process.Awaiting(t, "the warning", func(context.Context) error {
		pod, err := client.try(t, "team", func(*corev1.Pod) {}, asked)
		must(t, err)
		if len(pod.Spec.InitContainers) > 0 {
			t.Fatal("there is a sidecar")
		}
		if !slices.ContainsFunc(client.warnings, func(text string) bool {
			return strings.HasPrefix(text, "spillway: not injected: it is not known what the namespace allows its pods: ") &&
				strings.Contains(text, "forbidden")
		}) {
			return fmt.Errorf("not yet: %q", client.warnings)
		}
		return nil
	})
	_, err := c.Kubectl(t.Context(), "create", "clusterrole", "sizing", "--verb=get,list,watch",
		"--resource=limitranges,resourcequotas")
	must(t, err)
	_, err = c.Kubectl(t.Context(), "create", "clusterrolebinding", "sizing", "--clusterrole=sizing", "--user=alice")
	must(t, err)
	process.Awaiting(t, "a sidecar", func(context.Context) error {
		pod, err := client.try(t, "team", func(*corev1.Pod) {}, asked)
		must(t, err)
		if len(pod.Spec.InitContainers) == 0 {
			return fmt.Errorf("not yet: %q", client.warnings)
		}
		return nil
	})
}

// apply makes the namespace of a policy.
func (c *cluster) apply(t *testing.T, p policy) {
	t.Helper()
	must(t, c.tryApply(t, p))
}

func (c *cluster) tryApply(t *testing.T, p policy) error {
	t.Helper()
	core := c.client.CoreV1()
	_, err := core.Namespaces().Create(t.Context(),
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: p.name, Labels: p.labels}}, metav1.CreateOptions{})
	must(t, err)
	for name, automount := range map[string]*bool{"default": nil, "bare": ptr.To(false)} {
		_, err := core.ServiceAccounts(p.name).Create(t.Context(),
			&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}, AutomountServiceAccountToken: automount},
			metav1.CreateOptions{})
		must(t, err)
	}
	if p.ranges != nil {
		_, err := core.LimitRanges(p.name).Create(t.Context(),
			&corev1.LimitRange{ObjectMeta: metav1.ObjectMeta{Name: "range"},
				Spec: corev1.LimitRangeSpec{Limits: p.ranges}}, metav1.CreateOptions{})
		if err != nil {
			return err
		}
	}
	for i, q := range p.quotas {
		made, err := core.ResourceQuotas(p.name).Create(t.Context(), &corev1.ResourceQuota{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("quota-", i)},
			Spec:       corev1.ResourceQuotaSpec{Hard: q.hard, Scopes: q.scopes},
		}, metav1.CreateOptions{})
		must(t, err)
		made.Status = corev1.ResourceQuotaStatus{Hard: q.hard, Used: q.used} // as the controller would
		_, err = core.ResourceQuotas(p.name).UpdateStatus(t.Context(), made, metav1.UpdateOptions{})
		must(t, err)
	}
	return nil
}
