package inject

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"spillway/test/framework/controlplane"
	"spillway/test/framework/process"
)

// policy is what a namespace allows.
type policy struct {
	name   string // as a sentence, of which the namespace's name is made
	labels map[string]string
	ranges []corev1.LimitRangeItem
	quotas []quota
	// plain is what becomes of a plain pod, where it is created without the webhook.
	plain outcome
}

// outcome is what becomes of a pod that is created.
type outcome string

const (
	withSidecar outcome = "S" // it has one
	withWarning outcome = "w" // it has none, and there is a warning
	asItIs      outcome = "-" // it is refused without the webhook, too
	refused     outcome = "X" // it is refused with the webhook alone
)

// namespace is the name of a policy's namespace.
func (p policy) namespace() string {
	return strings.Trim(strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, strings.ToLower(p.name)), "-")
}

// quota is a ResourceQuota with what is used of it.
type quota struct {
	hard, used corev1.ResourceList
	scopes     []corev1.ResourceQuotaScope
	selector   []corev1.ScopedResourceSelectorRequirement
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

func ofPod(change func(*corev1.LimitRangeItem)) []corev1.LimitRangeItem {
	items := ofContainer(change)
	items[0].Type = corev1.LimitTypePod
	return items
}

const gpu = "example.com/gpu"

func enforce(level string) map[string]string {
	return map[string]string{"pod-security.kubernetes.io/enforce": level}
}

func scoped(hard, used string, scopes ...corev1.ResourceQuotaScope) quota {
	return quota{hard: amounts(hard), used: amounts(used), scopes: scopes}
}

// selecting is a quota with a selector by a scope, with what it names.
func selecting(hard, used string, scope corev1.ResourceQuotaScope, operator corev1.ScopeSelectorOperator,
	values ...string) quota {
	return quota{hard: amounts(hard), used: amounts(used), selector: []corev1.ScopedResourceSelectorRequirement{
		{ScopeName: scope, Operator: operator, Values: values}}}
}

func policies() []policy {
	limits := quota{hard: amounts("limits.cpu=4 limits.memory=4Gi"), used: amounts("limits.cpu=0 limits.memory=0")}
	defaults := ofContainer(func(i *corev1.LimitRangeItem) {
		i.Default, i.DefaultRequest = amounts("cpu=200m memory=200Mi"), amounts("cpu=20m memory=50Mi")
	})
	all := []policy{
		{name: "no rules", plain: withSidecar},
		{name: "PodSecurity privileged", labels: enforce("privileged"), plain: withSidecar},
		{name: "PodSecurity baseline", labels: enforce("baseline"), plain: withSidecar},
		{name: "PodSecurity restricted", labels: enforce("restricted"), plain: withSidecar},
		{name: "small defaults", plain: withSidecar, ranges: ofContainer(func(i *corev1.LimitRangeItem) {
			i.Default = amounts("cpu=40m memory=100Mi")
		})},
		{name: "a default of CPU", plain: withSidecar, ranges: ofContainer(func(i *corev1.LimitRangeItem) {
			i.Default = amounts("cpu=500m")
		})},
		{name: "a min of CPU", plain: withSidecar, ranges: ofContainer(func(i *corev1.LimitRangeItem) {
			i.Min = amounts("cpu=100m")
		})},
		{name: "a max of memory of 100Mi", plain: withSidecar, ranges: ofContainer(func(i *corev1.LimitRangeItem) {
			i.Max = amounts("memory=100Mi")
		})},
		{name: "a max of memory of 32Mi", plain: withWarning, ranges: ofContainer(func(i *corev1.LimitRangeItem) {
			i.Max = amounts("memory=32Mi")
		})},
		{name: "a ratio per container", plain: withSidecar, ranges: ofContainer(func(i *corev1.LimitRangeItem) {
			i.MaxLimitRequestRatio, i.Default, i.DefaultRequest = amounts("cpu=4 memory=1"),
				amounts("cpu=40m memory=64Mi"), amounts("cpu=20m memory=64Mi")
		})},
		{name: "a max per pod", plain: withSidecar, ranges: append(defaults, ofPod(func(i *corev1.LimitRangeItem) {
			i.Max = amounts("cpu=1 memory=500Mi")
		})...)},
		{name: "a min per pod", plain: withSidecar, ranges: append(defaults, ofPod(func(i *corev1.LimitRangeItem) {
			i.Min = amounts("memory=10Mi")
		})...)},
		{name: "a ratio per pod", plain: withWarning, ranges: append(defaults, ofPod(func(i *corev1.LimitRangeItem) {
			i.MaxLimitRequestRatio = amounts("cpu=20 memory=5")
		})...)},
		{name: "a max of ephemeral storage", plain: withSidecar, ranges: ofContainer(func(i *corev1.LimitRangeItem) {
			i.Max, i.DefaultRequest = amounts("ephemeral-storage=1Gi"), amounts("ephemeral-storage=10Mi")
		})},
		{name: "a min of ephemeral storage", plain: withWarning, ranges: ofContainer(func(i *corev1.LimitRangeItem) {
			i.Min = amounts("ephemeral-storage=10Mi")
		})},
		{name: "a max of ephemeral storage per pod", plain: withSidecar, ranges: append(
			ofContainer(func(i *corev1.LimitRangeItem) { i.Default = amounts("ephemeral-storage=1Gi") }),
			ofPod(func(i *corev1.LimitRangeItem) { i.Max = amounts("ephemeral-storage=1Gi") })...)},
		{name: "a quota of ephemeral storage", plain: withSidecar, quotas: []quota{
			{hard: amounts("requests.ephemeral-storage=1Gi limits.ephemeral-storage=1Gi"),
				used: amounts("requests.ephemeral-storage=1Gi limits.ephemeral-storage=1Gi")}}},
		{name: "a min of an extended resource", plain: asItIs, ranges: ofContainer(func(i *corev1.LimitRangeItem) {
			i.Min = amounts(gpu + "=1")
		})},
		{name: "a max of an extended resource", plain: withSidecar, ranges: ofContainer(func(i *corev1.LimitRangeItem) {
			i.Max = amounts(gpu + "=1")
		})},
		{name: "a default of an extended resource", plain: withSidecar, ranges: ofContainer(func(i *corev1.LimitRangeItem) {
			i.Default, i.DefaultRequest = amounts(gpu+"=1"), amounts(gpu+"=1")
		}), quotas: []quota{{hard: amounts("requests." + gpu + "=1"), used: amounts("requests." + gpu + "=0")}}},
		{name: "a full quota of an extended resource", plain: withSidecar, quotas: []quota{
			{hard: amounts("requests." + gpu + "=1"), used: amounts("requests." + gpu + "=1")}}},
		{name: "a default of hugepages", plain: withSidecar, ranges: ofContainer(func(i *corev1.LimitRangeItem) {
			i.Default = amounts("hugepages-2Mi=4Mi memory=64Mi cpu=100m")
		}), quotas: []quota{{hard: amounts("hugepages-2Mi=4Mi"), used: amounts("hugepages-2Mi=0")}}},
		{name: "a default of hugepages alone", plain: asItIs, ranges: ofContainer(func(i *corev1.LimitRangeItem) {
			i.Default = amounts("hugepages-2Mi=4Mi")
		})},
		{name: "a quota of limits", plain: asItIs, quotas: []quota{limits}},
		{name: "a quota of limits, with defaults", plain: withSidecar, ranges: defaults, quotas: []quota{limits}},
		{name: "a quota with little left", plain: withWarning, ranges: defaults, quotas: []quota{
			{hard: amounts("requests.memory=1Gi"), used: amounts("requests.memory=850Mi")}}},
		{name: "a quota with just enough left", plain: withSidecar, ranges: defaults, quotas: []quota{
			{hard: amounts("requests.memory=1Gi pods=10"), used: amounts("requests.memory=718Mi pods=9")}}},
		{name: "a quota of pods", plain: withSidecar, quotas: []quota{
			{hard: amounts("pods=1 count/pods=1"), used: amounts("pods=0 count/pods=0")}}},
		{name: "quotas by class", plain: withSidecar, quotas: []quota{
			scoped("pods=2", "pods=0", corev1.ResourceQuotaScopeBestEffort),
			scoped("pods=2 limits.memory=2Gi", "pods=0 limits.memory=0", corev1.ResourceQuotaScopeNotBestEffort),
		}},
		{name: "no pods but BestEffort", plain: withSidecar, quotas: []quota{
			scoped("pods=0", "pods=0", corev1.ResourceQuotaScopeNotBestEffort)}},
		{name: "no BestEffort pods", plain: asItIs, quotas: []quota{
			scoped("pods=0", "pods=0", corev1.ResourceQuotaScopeBestEffort)}},
		{name: "no pods but BestEffort, by selector", plain: withSidecar, quotas: []quota{selecting("pods=0", "pods=0",
			corev1.ResourceQuotaScopeNotBestEffort, corev1.ScopeSelectorOpExists)}},
		{name: "a full quota of terminating pods", plain: withSidecar, ranges: defaults, quotas: []quota{
			scoped("limits.memory=300Mi", "limits.memory=100Mi", corev1.ResourceQuotaScopeTerminating)}},
		{name: "a full quota of pods that do not terminate", plain: withWarning, ranges: defaults, quotas: []quota{
			scoped("limits.memory=300Mi", "limits.memory=100Mi", corev1.ResourceQuotaScopeNotTerminating)}},
		{name: "a full quota of pods with any priority", plain: withSidecar, ranges: defaults, quotas: []quota{
			selecting("cpu=100m memory=300Mi", "cpu=0 memory=100Mi", corev1.ResourceQuotaScopePriorityClass,
				corev1.ScopeSelectorOpExists)}},
		{name: "a full quota of pods without a priority", plain: withWarning, ranges: defaults, quotas: []quota{
			selecting("cpu=100m memory=300Mi", "cpu=0 memory=100Mi", corev1.ResourceQuotaScopePriorityClass,
				corev1.ScopeSelectorOpDoesNotExist)}},
		{name: "a full quota of high priority", plain: withSidecar, ranges: defaults, quotas: []quota{
			selecting("memory=300Mi", "memory=100Mi", corev1.ResourceQuotaScopePriorityClass,
				corev1.ScopeSelectorOpIn, "high")}},
		{name: "a full quota of all but high priority", plain: withWarning, ranges: defaults, quotas: []quota{
			selecting("memory=300Mi", "memory=100Mi", corev1.ResourceQuotaScopePriorityClass,
				corev1.ScopeSelectorOpNotIn, "high")}},
		{name: "no affinity across namespaces", plain: withSidecar, quotas: []quota{
			scoped("pods=0", "pods=0", corev1.ResourceQuotaScopeCrossNamespacePodAffinity)}},
		{name: "a quota and a LimitRange of claims", plain: withSidecar, quotas: []quota{
			selecting("requests.storage=1Gi", "requests.storage=1Gi", corev1.ResourceQuotaScopeVolumeAttributesClass,
				corev1.ScopeSelectorOpExists)},
			ranges: []corev1.LimitRangeItem{{Type: corev1.LimitTypePersistentVolumeClaim, Min: amounts("storage=1Gi")}}},
		{name: "everything", plain: withSidecar, labels: enforce("restricted"), quotas: []quota{limits},
			ranges: append(ofContainer(func(i *corev1.LimitRangeItem) {
				i.Default, i.DefaultRequest, i.Min, i.Max = amounts("cpu=200m memory=100Mi"),
					amounts("cpu=20m memory=50Mi"), amounts("cpu=5m memory=10Mi"), amounts("cpu=1 memory=300Mi "+gpu+"=1")
				i.MaxLimitRequestRatio = amounts("cpu=10")
			}), ofPod(func(i *corev1.LimitRangeItem) { i.Max = amounts("cpu=2 memory=1Gi") })...)},
	}
	return all
}

// shape is what a pod is like.
type shape struct {
	name   string
	change func(*corev1.Pod)
}

// shapes are pods. Each is what PodSecurity takes for restricted, but for the one in its node's
// network.
func shapes() []shape {
	size := func(requests, limits string) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Spec.Containers[0].Resources = corev1.ResourceRequirements{Requests: amounts(requests), Limits: amounts(limits)}
		}
	}
	guaranteed := size("cpu=20m memory=30Mi", "cpu=20m memory=30Mi")
	burstable := size("cpu=10m memory=20Mi", "cpu=40m memory=32Mi")
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
	terminating := func(p *corev1.Pod) { p.Spec.ActiveDeadlineSeconds = ptr.To[int64](60) }
	priority := func(p *corev1.Pod) { p.Spec.PriorityClassName = "high" }
	annotated := func(p *corev1.Pod) {
		p.Annotations = map[string]string{"spillway.example.com/memory-request": "64Mi",
			"spillway.example.com/memory-limit": "64Mi"}
	}
	all := func(changes ...func(*corev1.Pod)) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			for _, change := range changes {
				change(p)
			}
		}
	}
	return []shape{
		{"BestEffort", func(*corev1.Pod) {}},
		{"Burstable", burstable},
		{"Guaranteed", guaranteed},
		{"BestEffort, terminating", terminating},
		{"Burstable, terminating", all(burstable, terminating)},
		{"Guaranteed, terminating", all(guaranteed, terminating)},
		{"BestEffort, with a priority class", priority},
		{"Burstable, with a priority class", all(burstable, priority)},
		{"Guaranteed, with a priority class", all(guaranteed, priority)},
		{"BestEffort by 0", size("cpu=0 memory=0", "cpu=0 memory=0")},
		{"BestEffort, with a size of its sidecar", annotated},
		{"Burstable, with a size of its sidecar", all(burstable, annotated)},
		{"one that has a GPU", size("cpu=20m "+gpu+"=1", gpu+"=1")},
		{"one that has 0 GPUs", size(gpu+"=0", gpu+"=0")},
		{"one that has hugepages", size("cpu=20m memory=30Mi hugepages-2Mi=2Mi", "hugepages-2Mi=2Mi")},
		{"one that has ephemeral storage", size("ephemeral-storage=20Mi", "ephemeral-storage=1Gi")},
		{"one with affinity across namespaces", func(p *corev1.Pod) {
			p.Spec.Affinity = &corev1.Affinity{PodAffinity: &corev1.PodAffinity{
				RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{TopologyKey: "zone",
					NamespaceSelector: &metav1.LabelSelector{}, LabelSelector: &metav1.LabelSelector{}}}}}
		}},
		{"100Mi as a whole", whole("memory=100Mi", "memory=100Mi")},
		{"limits as a whole", whole("", "cpu=500m memory=100Mi")},
		{"requests as a whole", all(burstable, whole("cpu=500m memory=100Mi", ""))},
		{"Guaranteed as a whole", whole("cpu=100m memory=100Mi", "cpu=100m memory=100Mi")},
		{"hugepages as a whole", whole("cpu=100m hugepages-2Mi=2Mi", "hugepages-2Mi=2Mi")},
		{"without a token", func(p *corev1.Pod) { p.Spec.AutomountServiceAccountToken = ptr.To(false) }},
		{"without a token of its account", func(p *corev1.Pod) { p.Spec.ServiceAccountName = "bare" }},
		{"with a token of its own", projected},
		{"behind a proxy", proxied},
		{"in a mesh with a native sidecar", neighbour("istio-proxy", true)},
		{"in a mesh by CNI", neighbour("istio-validation", false)},
		{"with an init container", all(size("cpu=20m memory=20Mi", "cpu=80m memory=30Mi"), neighbour("migrate", false))},
		{"Guaranteed, in a mesh", all(guaranteed, neighbour("linkerd-proxy", true))},
		{"Guaranteed, own token, proxy, mesh", all(guaranteed, projected, proxied, neighbour("istio-proxy", true))},
		{"as a whole, own token, proxy", all(whole("cpu=50m memory=64Mi", "cpu=100m memory=100Mi"), projected, proxied)},
		{"in its node's network", func(p *corev1.Pod) { p.Spec.HostNetwork = true }},
		{"as root, with a group for files", func(p *corev1.Pod) {
			p.Spec.SecurityContext = &corev1.PodSecurityContext{RunAsUser: ptr.To[int64](0), FSGroup: ptr.To[int64](2000),
				SupplementalGroups: []int64{3000}}
		}},
	}
}

var asked = map[string]string{"spillway.example.com/inject": "enabled"}

// try has kube-apiserver do all for a pod but keep it.
func (w *warningRecorder) try(
	t *testing.T,
	namespace string,
	change func(*corev1.Pod),
	labels map[string]string,
) (*corev1.Pod, error) {
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

// TestNoPodIsKeptFromBeingCreated: every pod that a real kube-apiserver takes in a namespace
// without the webhook is taken with it: with a sidecar, or without and with a warning. It is of the
// same QoS class, unless its annotations say a size.
func TestNoPodIsKeptFromBeingCreated(t *testing.T) {
	c := newCluster(t)
	c.makePriority(t)
	all := policies()
	for _, p := range all {
		c.apply(t, p)
	}
	c.register(t, c.startWebhook(t))
	client := c.warned(t)
	client.awaitWebhook(t, all[0].namespace())

	var table strings.Builder
	out := tabwriter.NewWriter(&table, 0, 0, 1, ' ', 0)
	for i := range shapes() {
		fmt.Fprintf(out, "\t%02d", i+1)
	}
	counts := map[outcome]int{}
	reasons := map[string]bool{}
	for _, p := range all {
		fmt.Fprint(out, "\n"+p.name)
		for i, s := range shapes() {
			without, err := client.try(t, p.namespace(), s.change, nil)
			found := asItIs
			if err == nil {
				found = client.compare(t, p.namespace(), s.change, without)
			}
			if found == withWarning {
				reasons[fmt.Sprintf("%s: %s: %s", p.name, s.name, client.warnings[0])] = true
			}
			if i == 0 && found != p.plain {
				t.Errorf("a plain pod with %s: %s, want %s: %q", p.name, found, p.plain, client.warnings)
			}
			counts[found]++
			fmt.Fprint(out, "\t"+found)
		}
	}
	_ = out.Flush()
	for i, s := range shapes() {
		t.Logf("%02d: %s", i+1, s.name)
	}
	t.Logf("S: with a sidecar, w: without, with a warning, -: refused as it is, X: refused with the webhook\n%s\n%v",
		&table, counts)
	for _, reason := range slices.Sorted(maps.Keys(reasons)) {
		t.Log(reason)
	}
	if counts[withSidecar] < 500 || counts[withWarning] < 200 {
		t.Errorf("%v: that is not the matrix", counts)
	}
}

// compare creates a pod with a sidecar that was created without, and says what became of it. It is
// an error if it is refused, if nothing is said, or if another class is not said.
func (w *warningRecorder) compare(t *testing.T, namespace string, change func(*corev1.Pod),
	without *corev1.Pod) outcome {
	t.Helper()
	with, err := w.try(t, namespace, change, asked)
	if err != nil {
		t.Errorf("in %s refused with the webhook: %v: %+v", namespace, err, without.Spec)
		return refused
	}
	said := func(what string) bool {
		return slices.ContainsFunc(w.warnings, func(text string) bool {
			return strings.HasPrefix(text, "spillway: "+what)
		})
	}
	i := slices.IndexFunc(with.Spec.InitContainers, func(c corev1.Container) bool { return c.Name == "spillway" })
	switch {
	case i < 0 && said("not injected: "):
		return withWarning
	case i < 0:
		t.Errorf("in %s neither a sidecar nor a warning: %q", namespace, w.warnings)
		return withWarning
	}
	if was, is := without.Status.QOSClass, with.Status.QOSClass; was != is && !said("the pod is Burstable with its ") {
		t.Errorf("in %s: %s, and with a sidecar %s: %+v", namespace, was, is, with.Spec)
	}
	r := with.Spec.InitContainers[i].Resources
	for _, list := range []corev1.ResourceList{r.Requests, r.Limits} {
		for name, q := range list {
			if name != corev1.ResourceCPU && name != corev1.ResourceMemory && !q.IsZero() {
				t.Errorf("in %s the sidecar has %s of %s", namespace, q.String(), name)
			}
		}
	}
	return withSidecar
}

// awaitWebhook waits until kube-apiserver knows the webhook.
func (w *warningRecorder) awaitWebhook(t *testing.T, namespace string) {
	t.Helper()
	process.Awaiting(t, "kube-apiserver to know the webhook", func(context.Context) error {
		pod, err := w.try(t, namespace, func(*corev1.Pod) {}, asked)
		if err != nil || len(pod.Spec.InitContainers) != 1 {
			return errors.Join(errors.New("not yet"), err)
		}
		return nil
	})
}

// makePriority makes the class of priority that pods have.
func (c *cluster) makePriority(t *testing.T) {
	t.Helper()
	_, err := c.client.SchedulingV1().PriorityClasses().Create(t.Context(),
		&schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "high"}, Value: 1000}, metav1.CreateOptions{})
	must(t, err)
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
			return strings.HasPrefix(text, "spillway: not injected: the limits of the namespace are not known: ") &&
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
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: p.namespace(), Labels: p.labels}}, metav1.CreateOptions{})
	must(t, err)
	for name, automount := range map[string]*bool{"default": nil, "bare": ptr.To(false)} {
		_, err := core.ServiceAccounts(p.namespace()).Create(t.Context(),
			&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}, AutomountServiceAccountToken: automount},
			metav1.CreateOptions{})
		must(t, err)
	}
	if p.ranges != nil {
		_, err := core.LimitRanges(p.namespace()).Create(t.Context(),
			&corev1.LimitRange{ObjectMeta: metav1.ObjectMeta{Name: "range"},
				Spec: corev1.LimitRangeSpec{Limits: p.ranges}}, metav1.CreateOptions{})
		if err != nil {
			return err
		}
	}
	for i, q := range p.quotas {
		spec := corev1.ResourceQuotaSpec{Hard: q.hard, Scopes: q.scopes}
		if q.selector != nil {
			spec.ScopeSelector = &corev1.ScopeSelector{MatchExpressions: q.selector}
		}
		made, err := core.ResourceQuotas(p.namespace()).Create(t.Context(), &corev1.ResourceQuota{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("quota-", i)},
			Spec:       spec,
		}, metav1.CreateOptions{})
		must(t, err)
		made.Status = corev1.ResourceQuotaStatus{Hard: q.hard, Used: q.used} // as the controller would
		_, err = core.ResourceQuotas(p.namespace()).UpdateStatus(t.Context(), made, metav1.UpdateOptions{})
		must(t, err)
	}
	return nil
}
