package inject

import (
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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

func rangeOf(change func(*corev1.LimitRangeItem)) *NamespaceLimits {
	item := corev1.LimitRangeItem{Type: corev1.LimitTypeContainer}
	change(&item)
	return &NamespaceLimits{Ranges: []*corev1.LimitRange{{ObjectMeta: metav1.ObjectMeta{Name: "r"},
		Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{item}}}}}
}

func quotaOf(hard, used string) *NamespaceLimits {
	return &NamespaceLimits{Quotas: []*corev1.ResourceQuota{{
		ObjectMeta: metav1.ObjectMeta{Name: "q"}, Spec: corev1.ResourceQuotaSpec{Hard: amounts(hard)},
		Status: corev1.ResourceQuotaStatus{Used: amounts(used)},
	}}}
}

// A sidecar is as large as its pod and the namespace allow, up to what is wanted, and there is none
// that is too small to work.
func TestSizedToPodAndNamespace(t *testing.T) {
	for _, c := range []struct {
		name           string
		limits         *NamespaceLimits
		pod            string // limits of its container
		requests, upTo string // of the sidecar; empty: left
	}{
		{"nothing", nil, "", "cpu=50m memory=128Mi", ""},
		{"default", rangeOf(func(i *corev1.LimitRangeItem) { i.Default = amounts("memory=100Mi cpu=40m") }), "",
			"cpu=50m memory=128Mi", "cpu=500m memory=256Mi"},
		{"large default", rangeOf(func(i *corev1.LimitRangeItem) { i.Default = amounts("cpu=2") }), "",
			"cpu=50m memory=128Mi", "cpu=2"},
		{"min", rangeOf(func(i *corev1.LimitRangeItem) { i.Min = amounts("cpu=100m") }), "", "cpu=100m memory=128Mi", ""},
		{"max", rangeOf(func(i *corev1.LimitRangeItem) { i.Max = amounts("memory=100Mi") }), "", "cpu=50m memory=100Mi",
			"memory=100Mi"},
		{"too small a max", rangeOf(func(i *corev1.LimitRangeItem) { i.Max = amounts("memory=63Mi") }), "", "", ""},
		{"ratio", rangeOf(func(i *corev1.LimitRangeItem) { i.MaxLimitRequestRatio = amounts("memory=1 cpu=4") }), "",
			"cpu=50m memory=128Mi", "cpu=200m memory=128Mi"},
		{"ratio of one", rangeOf(func(i *corev1.LimitRangeItem) { i.MaxLimitRequestRatio = amounts("cpu=1") }), "",
			"cpu=100m memory=128Mi", "cpu=100m"},
		{"quota of limits", quotaOf("limits.cpu=1 limits.memory=1Gi", ""), "cpu=1m memory=1Mi", "cpu=200m memory=256Mi",
			"cpu=200m memory=256Mi"},
		{"tight quota", quotaOf("requests.memory=1Gi", "requests.memory=900Mi"), "memory=1Mi cpu=1",
			"cpu=200m memory=112Mi", "cpu=200m memory=112Mi"},
		{"full quota", quotaOf("requests.memory=1Gi", "requests.memory=1000Mi"), "memory=1Mi", "", ""},
		{"quota that the pod alone breaks", quotaOf("requests.memory=1Gi", "requests.memory=1Gi"), "memory=1Mi",
			"cpu=50m memory=128Mi", ""},
		{"guaranteed", nil, "cpu=1 memory=1Gi", "cpu=200m memory=256Mi", "cpu=200m memory=256Mi"},
	} {
		template := templateOf(t, &corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{
			Name: "app", Resources: corev1.ResourceRequirements{Limits: amounts(c.pod)},
		}}}})
		o := options()
		o.Limits = c.limits
		got, err := o.size(template, 0)
		var left *LeftError
		switch {
		case c.requests == "":
			if !errors.As(err, &left) || !left.Notable {
				t.Errorf("%s: %+v, %v", c.name, got, err)
			}
		case err != nil:
			t.Errorf("%s: %v", c.name, err)
		default:
			for list, want := range map[*corev1.ResourceList]string{&got.Requests: c.requests, &got.Limits: c.upTo} {
				wanted := amounts(want)
				if len(*list) != len(wanted) || (*list).Cpu().Cmp(*wanted.Cpu()) != 0 ||
					(*list).Memory().Cmp(*wanted.Memory()) != 0 {
					t.Errorf("%s: asks for %v up to %v, want %s up to %s", c.name, got.Requests, got.Limits, c.requests, c.upTo)
				}
			}
		}
	}
}

// What a pod asks for as a whole grows by the sidecar's part, and what follows from a limit is
// said, so that it does not follow from the sidecar alone.
func TestPodLevelGrows(t *testing.T) {
	template := templateOf(t, &corev1.PodTemplateSpec{Spec: corev1.PodSpec{
		Containers: []corev1.Container{{Name: "app",
			VolumeMounts: []corev1.VolumeMount{{Name: tokenVolume + "x", MountPath: accountDir}}}},
		Resources: &corev1.ResourceRequirements{Limits: amounts("memory=100Mi")},
	}})
	o := options()
	o.Admitted = true
	patch, _, err := Plan(template, o)
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
	if len(found) != 2 || found["/spec/resources/limits/memory"] != "356Mi" || requests.Memory().String() != "228Mi" {
		t.Errorf("%+v", found)
	}
}

// A quantity that is none, or of which there are too many, is not sized by.
func TestAmountsOfStrangers(t *testing.T) {
	many := make(Amounts)
	for i := range resourceLimit + 1 {
		many[string(rune('a'+i))] = "1"
	}
	for _, amounts := range []Amounts{{"cpu": "1e-100000000"}, {"memory": "lots"}, many} {
		template := &Template{Spec: Spec{Containers: []PodContainer{{Name: "app",
			Resources: Requirements{Requests: amounts}}}}}
		if _, err := options().size(template, 0); err == nil {
			t.Errorf("%d amounts are taken", len(amounts))
		}
	}
}
