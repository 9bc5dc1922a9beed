package inject

import (
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"spillway/internal/sidecar/limits"
)

// amounts reads name=quantity pairs.
func amounts(text string) corev1.ResourceList {
	list := corev1.ResourceList{}
	for _, pair := range strings.Fields(text) {
		name, q, _ := strings.Cut(pair, "=")
		list[corev1.ResourceName(name)] = resource.MustParse(q)
	}
	return list
}

func rangeOf(change func(*corev1.LimitRangeItem)) *limits.Rules {
	item := corev1.LimitRangeItem{Type: corev1.LimitTypeContainer}
	change(&item)
	return &limits.Rules{Ranges: []*corev1.LimitRange{{ObjectMeta: metav1.ObjectMeta{Name: "r"},
		Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{item}}}}}
}

func quotaOf(hard, used string) *limits.Rules {
	return &limits.Rules{Quotas: []*corev1.ResourceQuota{{
		ObjectMeta: metav1.ObjectMeta{Name: "q"}, Spec: corev1.ResourceQuotaSpec{Hard: amounts(hard)},
		Status: corev1.ResourceQuotaStatus{Used: amounts(used)},
	}}}
}

func sameAmounts(a, b corev1.ResourceList) bool { return apiequality.Semantic.DeepEqual(a, b) }

// podOf is a pod with one container that asks for something.
func podOf(requests, limits string) *corev1.PodTemplateSpec {
	return &corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{
		Name:      "app",
		Resources: corev1.ResourceRequirements{Requests: amounts(requests), Limits: amounts(limits)},
	}}}}
}

func scopedQuota(hard string, scopes ...corev1.ResourceQuotaScope) *limits.Rules {
	l := quotaOf(hard, "")
	l.Quotas[0].Spec.Scopes = scopes
	return l
}

func priorityQuota(hard, used string, operator corev1.ScopeSelectorOperator, classes ...string) *limits.Rules {
	l := quotaOf(hard, used)
	l.Quotas[0].Spec.ScopeSelector = &corev1.ScopeSelector{
		MatchExpressions: []corev1.ScopedResourceSelectorRequirement{
			{ScopeName: corev1.ResourceQuotaScopePriorityClass, Operator: operator, Values: classes}}}
	return l
}

func podRange(change func(*corev1.LimitRangeItem)) *limits.Rules {
	return rangeOf(func(i *corev1.LimitRangeItem) {
		i.Type = corev1.LimitTypePod
		change(i)
	})
}

// A sidecar is of a size with which its pod keeps each rule of the namespace that it keeps without
// it; or the pod is left, and what is said names the rule.
func TestSizeKeepsEachRuleOfTheNamespace(t *testing.T) {
	const gpu = "example.com/gpu"
	for _, c := range []struct {
		name           string
		rules          *limits.Rules
		pod            *corev1.PodTemplateSpec
		requests, upTo string // of the sidecar
		left           string // part of why there is none
	}{
		{name: "a BestEffort pod stays BestEffort", pod: podOf("", "")},
		{name: "a Burstable pod in a namespace without rules has what is wanted", pod: podOf("cpu=1m", ""),
			requests: "cpu=50m memory=128Mi"},
		{name: "a Guaranteed pod stays Guaranteed", pod: podOf("", "cpu=1 memory=1Gi"),
			requests: "cpu=200m memory=256Mi", upTo: "cpu=200m memory=256Mi"},
		{name: "a rule about one resource says nothing about the other", pod: podOf("memory=1Mi", ""),
			rules:    rangeOf(func(i *corev1.LimitRangeItem) { i.Default = amounts("memory=100Mi") }),
			requests: "cpu=50m memory=256Mi", upTo: "memory=256Mi"},
		{name: "a LimitRange's min raises a sidecar", pod: podOf("cpu=1", ""),
			rules:    rangeOf(func(i *corev1.LimitRangeItem) { i.Min = amounts("cpu=300m") }),
			requests: "cpu=300m memory=128Mi", upTo: "cpu=300m"},
		{name: "a LimitRange's max lowers a sidecar", pod: podOf("memory=1Mi", "memory=1Mi"),
			rules:    rangeOf(func(i *corev1.LimitRangeItem) { i.Max = amounts("memory=100Mi") }),
			requests: "cpu=50m memory=100Mi", upTo: "memory=100Mi"},
		{name: "a sidecar that a LimitRange makes too small is none", pod: podOf("memory=1Mi", "memory=1Mi"),
			rules: rangeOf(func(i *corev1.LimitRangeItem) { i.Max = amounts("memory=63Mi") }),
			left:  "would have 63Mi of memory because of a LimitRange, and needs 64Mi"},
		{name: "a ratio of a container is kept by requests that are limits", pod: podOf("cpu=1", "cpu=1"),
			rules:    rangeOf(func(i *corev1.LimitRangeItem) { i.MaxLimitRequestRatio = amounts("cpu=1") }),
			requests: "cpu=200m memory=128Mi", upTo: "cpu=200m"},
		{name: "a ratio of the pod is not followed", pod: podOf("cpu=1", "cpu=1"),
			rules: podRange(func(i *corev1.LimitRangeItem) { i.MaxLimitRequestRatio = amounts("cpu=1") }),
			left:  "LimitRange r has a maxLimitRequestRatio of cpu per Pod"},
		{name: "a max of the pod has room", pod: podOf("memory=1Mi", "memory=1Mi"),
			rules:    podRange(func(i *corev1.LimitRangeItem) { i.Max = amounts("memory=257Mi") }),
			requests: "cpu=50m memory=256Mi", upTo: "memory=256Mi"},
		{name: "a max of the pod has no room", pod: podOf("memory=1Mi", "memory=2Mi"),
			rules: podRange(func(i *corev1.LimitRangeItem) { i.Max = amounts("memory=257Mi") }),
			left:  "LimitRange r: max of memory per Pod is 257Mi"},
		{name: "a sidecar says 0 of an extended resource that a LimitRange would give it", pod: podOf("cpu=1m", ""),
			rules: rangeOf(func(i *corev1.LimitRangeItem) {
				i.Max, i.Default, i.DefaultRequest = amounts(gpu+"=2"), amounts(gpu+"=1"), amounts(gpu+"=1")
			}), requests: "cpu=50m memory=128Mi " + gpu + "=0", upTo: gpu + "=0"},
		{name: "a BestEffort pod's sidecar says 0 of all that a LimitRange would give it", pod: podOf(gpu+"=1", gpu+"=1"),
			rules: rangeOf(func(i *corev1.LimitRangeItem) {
				i.Default, i.DefaultRequest = amounts(gpu+"=1 cpu=1"), amounts(gpu+"=1 cpu=1")
			}), requests: "cpu=0 memory=0 " + gpu + "=0", upTo: "cpu=0 memory=0 " + gpu + "=0"},
		{name: "a sidecar requests 0 of ephemeral storage, without a limit that would be the pod's", pod: podOf("cpu=1m", ""),
			rules: rangeOf(func(i *corev1.LimitRangeItem) {
				i.DefaultRequest = amounts("ephemeral-storage=1Gi")
			}), requests: "cpu=50m memory=128Mi ephemeral-storage=0"},
		{name: "a LimitRange that demands an extended resource is not followed", pod: podOf("cpu=1m", ""),
			rules: rangeOf(func(i *corev1.LimitRangeItem) {
				i.Min, i.DefaultRequest = amounts(gpu+"=1"), amounts(gpu+"=1")
			}), left: "LimitRange r demands " + gpu + " of every container"},
		{name: "a LimitRange that demands 0 of an extended resource is kept", pod: podOf("cpu=1m", ""),
			rules: rangeOf(func(i *corev1.LimitRangeItem) {
				i.Min, i.DefaultRequest = amounts(gpu+"=0"), amounts(gpu+"=0")
			}), requests: "cpu=50m memory=128Mi " + gpu + "=0", upTo: gpu + "=0"},
		{name: "a ratio of another resource is not followed", pod: podOf("cpu=1m", ""),
			rules: rangeOf(func(i *corev1.LimitRangeItem) { i.MaxLimitRequestRatio = amounts("ephemeral-storage=1") }),
			left:  "LimitRange r demands ephemeral-storage of every container"},
		{name: "a LimitRange of claims says nothing", pod: podOf("cpu=1m", ""), requests: "cpu=50m memory=128Mi",
			rules: rangeOf(func(i *corev1.LimitRangeItem) {
				i.Type, i.Min = corev1.LimitTypePersistentVolumeClaim, amounts("storage=1Gi")
			})},
		{name: "a LimitRange of a type that is not known is not followed", pod: podOf("cpu=1m", ""),
			rules: rangeOf(func(i *corev1.LimitRangeItem) { i.Type = "Sandbox" }),
			left:  "LimitRange r has a limit of type Sandbox"},
		{name: "a quota of limits is charged", pod: podOf("", "cpu=1m memory=1Mi"),
			rules:    quotaOf("limits.cpu=1 limits.memory=1Gi", ""),
			requests: "cpu=200m memory=256Mi", upTo: "cpu=200m memory=256Mi"},
		{name: "a quota has just enough left", pod: podOf("memory=1Mi cpu=1", ""),
			rules:    quotaOf("requests.memory=1Gi", "requests.memory=767Mi"),
			requests: "cpu=50m memory=256Mi", upTo: "memory=256Mi"},
		{name: "a quota has too little left", pod: podOf("memory=1Mi cpu=1", ""),
			rules: quotaOf("requests.memory=1Gi", "requests.memory=768Mi"),
			left:  "ResourceQuota q has too little left of requests.memory (768Mi of 1Gi are used)"},
		{name: "a quota of pods alone says nothing", pod: podOf("cpu=1m", ""), rules: quotaOf("pods=1", "pods=1"),
			requests: "cpu=50m memory=128Mi"},
		{name: "no quota's scope is left by a BestEffort pod", pod: podOf("", ""),
			rules: scopedQuota("pods=0", corev1.ResourceQuotaScopeNotBestEffort), requests: "cpu=0 memory=0",
			upTo: "cpu=0 memory=0"},
		{name: "a quota that wants CPU is given 0 of it by a BestEffort pod's sidecar", pod: podOf("cpu=0", ""),
			rules: quotaOf("cpu=1", ""), requests: "cpu=0 memory=0", upTo: "cpu=0 memory=0"},
		{name: "a full quota of another scope says nothing", pod: podOf("memory=1Mi", ""),
			rules:    scopedQuota("limits.memory=0", corev1.ResourceQuotaScopeTerminating),
			requests: "cpu=50m memory=256Mi", upTo: "memory=256Mi"},
		{name: "a full quota of the pod's scope leaves it", pod: podOf("memory=1Mi", ""),
			rules: scopedQuota("limits.memory=0", corev1.ResourceQuotaScopeNotTerminating),
			left:  "ResourceQuota q has too little left of limits.memory"},
		{name: "a full quota of a scope that cannot be seen leaves the pod", pod: podOf("memory=1Mi", ""),
			rules: scopedQuota("limits.memory=0", corev1.ResourceQuotaScopeCrossNamespacePodAffinity),
			left:  "ResourceQuota q has too little left of limits.memory"},
		{name: "a scope that is not known is not followed", pod: podOf("memory=1Mi", ""),
			rules: scopedQuota("pods=1", "Sandboxed"), left: "ResourceQuota q has the scope Sandboxed"},
		{name: "a full quota of other priorities says nothing", pod: podOf("memory=1Mi", ""),
			rules:    priorityQuota("memory=0", "", corev1.ScopeSelectorOpIn, "high"),
			requests: "cpu=50m memory=256Mi", upTo: "memory=256Mi"},
		{name: "a full quota of pods without that priority leaves one", pod: podOf("memory=1Mi", ""),
			rules: priorityQuota("memory=0", "", corev1.ScopeSelectorOpNotIn, "high"),
			left:  "ResourceQuota q has too little left of memory"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := options().sizeOf(Pod{Template: templateOf(t, c.pod), Rules: c.rules})
			if c.left != "" {
				var left *SkippedError
				if !errors.As(err, &left) || !left.IsNotable || !strings.Contains(left.Error(), c.left) {
					t.Fatalf("%+v, %v; want %q", got, err, c.left)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if !sameAmounts(got.Requests, amounts(c.requests)) || !sameAmounts(got.Limits, amounts(c.upTo)) {
				t.Errorf("asks for %v up to %v, want %s up to %s", got.Requests, got.Limits, c.requests, c.upTo)
			}
		})
	}
}

// A size that was said for a BestEffort pod is its sidecar's, and that the pod's class changes is
// said; where quotas select by class, it is left.
func TestSizeThatIsSaidChangesTheClassAloud(t *testing.T) {
	annotated := podOf("", "")
	annotated.Annotations = map[string]string{"spillway.example.com/memory-request": "64Mi"}
	limited := options()
	limited.MemoryLimit = "256Mi"
	for name, c := range map[string]struct {
		o        Options
		pod      *corev1.PodTemplateSpec
		requests string
	}{
		"by an annotation": {options(), annotated, "cpu=50m memory=64Mi"},
		"as a limit":       {limited, podOf("", ""), "cpu=50m memory=128Mi"},
	} {
		o, err := c.o.withAnnotations(templateOf(t, c.pod))
		if err != nil {
			t.Fatal(err)
		}
		pod := Pod{Template: templateOf(t, c.pod)}
		got, err := o.sizeOf(pod)
		if err != nil || !sameAmounts(got.Requests, amounts(c.requests)) ||
			!strings.Contains(strings.Join(got.Notes, ""), "the pod is Burstable with its sidecar") {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
		for _, scope := range []corev1.ResourceQuotaScope{corev1.ResourceQuotaScopeBestEffort,
			corev1.ResourceQuotaScopeNotBestEffort} {
			pod.Rules = scopedQuota("pods=1", scope)
			var left *SkippedError
			if _, err := o.sizeOf(pod); !errors.As(err, &left) ||
				!strings.Contains(left.Error(), "ResourceQuota q has the scope "+string(scope)) {
				t.Errorf("%s, with a quota by scope: %v", name, err)
			}
		}
	}
}

// What kube-apiserver drops where the feature is off changes nothing: the sums are the larger ones,
// and a quota by class leaves a pod whose containers are BestEffort.
func TestPodLevelMayBeDropped(t *testing.T) {
	for name, c := range map[string]struct {
		pod   *corev1.PodTemplateSpec
		rules *limits.Rules
		left  string
	}{
		"more by its containers": {podOf("memory=800Mi", ""), quotaOf("memory=1Gi", ""), "too little left of memory"},
		"BestEffort by its containers": {podOf("", ""), scopedQuota("pods=0", corev1.ResourceQuotaScopeNotBestEffort),
			"has the scope NotBestEffort"},
	} {
		c.pod.Spec.Resources = &corev1.ResourceRequirements{Requests: amounts("memory=1Mi")}
		var left *SkippedError
		pod := Pod{Template: templateOf(t, c.pod), IsAdmitted: true, Rules: c.rules}
		if got, err := options().sizeOf(pod); !errors.As(err, &left) || !strings.Contains(left.Error(), c.left) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

// A sidecar for which nothing is wanted says 0 beside hugepages of which it says 0, which
// kube-apiserver refuses alone.
func TestZerosOfHugepagesAreNotAlone(t *testing.T) {
	o := options()
	o.CPURequest, o.MemoryRequest = "", ""
	got, err := o.sizeOf(Pod{Template: templateOf(t, podOf("cpu=1m", "")),
		Rules: rangeOf(func(i *corev1.LimitRangeItem) { i.Default = amounts("hugepages-2Mi=2Mi") })})
	if want := amounts("cpu=0 memory=0 hugepages-2Mi=0"); err != nil || !sameAmounts(got.Requests, want) ||
		!sameAmounts(got.Limits, want) {
		t.Errorf("%+v, %v", got, err)
	}
}

// What a pod asks for as a whole grows by the sidecar's part, and what follows from a limit is
// said, so that it does not follow from the sidecar alone.
func TestPodLevelGrows(t *testing.T) {
	template := templateOf(t, &corev1.PodTemplateSpec{Spec: corev1.PodSpec{
		Containers: []corev1.Container{{Name: "app",
			VolumeMounts: []corev1.VolumeMount{{Name: apiServerVolumePrefix + "x", MountPath: accountDir}}}},
		Resources: &corev1.ResourceRequirements{Limits: amounts("memory=100Mi")},
	}})
	patch, _, err := Plan(Pod{Template: template, IsAdmitted: true}, options())
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]any{}
	for _, operation := range patch {
		if strings.HasPrefix(operation.Path, "/spec/resources") {
			found[operation.Path] = operation.Value
		}
	}
	requests, _ := found["/spec/resources/requests"].(corev1.ResourceList)
	if len(found) != 2 || found["/spec/resources/limits/memory"] != "356Mi" || requests.Memory().String() != "356Mi" {
		t.Errorf("%+v", found)
	}
}

// A quantity that is none, or of which there are too many, is not sized by.
func TestAmountsOfStrangers(t *testing.T) {
	many := make(QuantityTexts)
	for i := range resourceLimit + 1 {
		many[string(rune('a'+i))] = "1"
	}
	for _, amounts := range []QuantityTexts{{"cpu": "1e-100000000"}, {"memory": "lots"}, many} {
		template := &Template{Spec: Spec{Containers: []PodContainer{{Name: "app",
			Resources: Requirements{Requests: amounts}}}}}
		if _, err := options().sizeOf(Pod{Template: template}); err == nil {
			t.Errorf("%d amounts are taken", len(amounts))
		}
	}
}
