package inject

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"
)

// rounds is how many random namespaces there are. In each, random pods are tried until podsEach are
// created without a sidecar, or triesEach are not.
var (
	rounds = flag.Int("rounds", 25, "random namespaces of TestNoPodIsKeptFromBeingCreatedAtRandom")
	seed   = flag.Uint64("seed", 1, "of its random numbers")
)

const (
	podsEach  = 8
	triesEach = 40
)

// TestNoPodIsKeptFromBeingCreatedAtRandom: neither is any pod of a random shape in a namespace of
// random rules. CI has 200 pods at most; -rounds=500 has 3,000.
func TestNoPodIsKeptFromBeingCreatedAtRandom(t *testing.T) {
	c := newCluster(t)
	c.makePriority(t)
	r := rand.New(rand.NewPCG(*seed, 2))
	var names []string
	for len(names) < *rounds {
		p := policy{name: fmt.Sprint("random-", r.Uint32()), ranges: randomRanges(r)}
		for range r.IntN(3) {
			p.quotas = append(p.quotas, randomQuota(r))
		}
		if err := c.tryApply(t, p); err == nil { // some make no sense to kube-apiserver
			names = append(names, p.namespace())
		}
	}
	c.apply(t, policy{name: "none"})
	c.register(t, c.startWebhook(t))
	client := c.warned(t)
	client.awaitWebhook(t, "none")
	counts := map[outcome]int{}
	for _, name := range names {
		for created, failed := 0, 0; created < podsEach && failed < triesEach; {
			change := randomShape(r)
			without, err := client.try(t, name, change, nil)
			if err != nil {
				counts[asItIs]++
				failed++
				continue
			}
			counts[client.compare(t, name, change, without)]++
			created++
		}
	}
	t.Logf("%d namespaces: %v", len(names), counts)
	if counts[withSidecar] < 2**rounds || counts[withWarning] < *rounds/2 {
		t.Errorf("%v: too few to tell", counts)
	}
}

func pick(r *rand.Rand, values ...string) string { return values[r.IntN(len(values))] }

// randomList is a list of some resources.
func randomList(r *rand.Rand, cpu, memory []string) corev1.ResourceList {
	return amounts(pick(r, "", "cpu="+pick(r, cpu...)) + " " + pick(r, "", "memory="+pick(r, memory...)))
}

var (
	smallCPU, largeCPU       = []string{"5m", "20m", "50m", "60m"}, []string{"150m", "500m", "1", "2"}
	smallMemory, largeMemory = []string{"8Mi", "30Mi", "64Mi", "80Mi"}, []string{"100Mi", "200Mi", "300Mi", "1Gi"}
)

// others are resources but CPU and memory.
var others = []string{"ephemeral-storage", gpu, "hugepages-2Mi"}

// randomRanges are limits of containers and pods, which now and then are about other resources.
func randomRanges(r *rand.Rand) []corev1.LimitRangeItem {
	item := corev1.LimitRangeItem{Type: corev1.LimitTypeContainer}
	if r.IntN(3) > 0 {
		item.Max = randomList(r, largeCPU, largeMemory)
		item.Default = randomList(r, largeCPU, largeMemory)
		item.DefaultRequest = randomList(r, smallCPU, smallMemory)
	}
	if r.IntN(3) == 0 {
		item.Min = randomList(r, smallCPU, smallMemory)
	}
	if r.IntN(4) == 0 {
		item.MaxLimitRequestRatio = randomList(r, []string{"2", "10"}, []string{"1", "1500m", "4"})
	}
	of := corev1.LimitRangeItem{Type: corev1.LimitTypePod}
	if r.IntN(3) == 0 {
		of.Max, of.Min = randomList(r, []string{"600m", "2", "4"}, []string{"300Mi", "600Mi", "2Gi"}),
			randomList(r, smallCPU, smallMemory)
	}
	if r.IntN(6) == 0 {
		of.MaxLimitRequestRatio = randomList(r, []string{"5", "20"}, []string{"2", "5"})
	}
	if r.IntN(3) == 0 {
		name := corev1.ResourceName(pick(r, others...))
		for _, list := range []*corev1.ResourceList{&item.Max, &item.Default, &item.DefaultRequest, &item.Min, &of.Max} {
			if r.IntN(3) > 0 {
				continue
			}
			if *list == nil {
				*list = corev1.ResourceList{}
			}
			(*list)[name] = resource.MustParse(pick(r, "0", "4Mi"))
		}
	}
	return []corev1.LimitRangeItem{item, of}
}

// randomQuota has bounds of some resources, with more or less used, and one of the scopes or none.
func randomQuota(r *rand.Rand) quota {
	q := quota{hard: corev1.ResourceList{}, used: corev1.ResourceList{}}
	set := func(name, hard string, used ...string) {
		q.hard[corev1.ResourceName(name)], q.used[corev1.ResourceName(name)] = resource.MustParse(hard),
			resource.MustParse(pick(r, used...))
	}
	if r.IntN(4) == 0 { // all that a scope by class may have
		set("pods", pick(r, "0", "10"), "0", "9")
		q.scopes = []corev1.ResourceQuotaScope{corev1.ResourceQuotaScope(pick(r, "BestEffort", "NotBestEffort",
			"Terminating", "CrossNamespacePodAffinity"))}
		return q
	}
	for name, bounds := range map[string][]string{"requests.cpu": {"1", "0", "700m", "960m"},
		"limits.cpu": {"3", "0", "2500m", "2800m"}, "requests.memory": {"1Gi", "0", "600Mi", "970Mi"},
		"limits.memory": {"2Gi", "0", "1500Mi", "1900Mi"}, "cpu": {"1", "0", "700m", "960m"},
		"memory": {"1Gi", "0", "600Mi", "970Mi"}, "pods": {"10", "0", "9"}} {
		if r.IntN(5) == 0 {
			set(name, bounds[0], bounds[1:]...)
		}
	}
	if r.IntN(5) == 0 {
		set("requests."+gpu, "1", "0", "1")
		set("requests.ephemeral-storage", "1Gi", "0", "1Gi")
		set("hugepages-2Mi", "4Mi", "0", "4Mi")
		return q // which no scope may have
	}
	switch r.IntN(3) {
	case 0:
		q.scopes = []corev1.ResourceQuotaScope{corev1.ResourceQuotaScope(pick(r, "NotBestEffort", "NotTerminating",
			"Terminating"))}
	case 1:
		operator := corev1.ScopeSelectorOperator(pick(r, "In", "NotIn", "Exists", "DoesNotExist"))
		of := corev1.ScopedResourceSelectorRequirement{ScopeName: corev1.ResourceQuotaScopePriorityClass, Operator: operator}
		if operator == corev1.ScopeSelectorOpIn || operator == corev1.ScopeSelectorOpNotIn {
			of.Values = []string{pick(r, "high", "low")}
		}
		q.selector = []corev1.ScopedResourceSelectorRequirement{of}
	}
	return q
}

func randomShape(r *rand.Rand) func(*corev1.Pod) {
	var resources []corev1.ResourceRequirements
	for range 3 {
		all := corev1.ResourceRequirements{Requests: randomList(r, smallCPU, smallMemory),
			Limits: randomList(r, append(largeCPU, smallCPU...), append(largeMemory, smallMemory...))}
		if r.IntN(3) == 0 {
			all = corev1.ResourceRequirements{Limits: amounts("cpu=" + pick(r, smallCPU...) + " memory=" + pick(r,
				smallMemory...)), Requests: corev1.ResourceList{}}
		}
		resources = append(resources, all)
	}
	if r.IntN(4) == 0 {
		name, q := corev1.ResourceName(pick(r, others...)), resource.MustParse("4Mi")
		resources[0].Limits[name], resources[0].Requests[name] = q, q
	}
	if r.IntN(4) == 0 {
		resources[0], resources[1] = corev1.ResourceRequirements{}, corev1.ResourceRequirements{}
	}
	inits, always, whole := r.IntN(3), r.IntN(2) == 0, r.IntN(4) == 0
	terminating, priority, annotated := r.IntN(4) == 0, r.IntN(3) == 0, r.IntN(5) == 0
	return func(p *corev1.Pod) {
		p.Spec.Containers[0].Resources = *resources[0].DeepCopy()
		if terminating {
			p.Spec.ActiveDeadlineSeconds = ptr.To[int64](60)
		}
		if priority {
			p.Spec.PriorityClassName = "high"
		}
		if annotated {
			p.Annotations = map[string]string{"spillway.example.com/memory-request": "80Mi",
				"spillway.example.com/memory-limit": "100Mi"}
		}
		for i := range inits {
			extra := corev1.Container{Name: fmt.Sprint("init-", i), Image: "init", Resources: *resources[i].DeepCopy()}
			if always && i == 0 {
				extra.Name, extra.RestartPolicy = "istio-proxy", ptr.To(corev1.ContainerRestartPolicyAlways)
			}
			p.Spec.InitContainers = append(p.Spec.InitContainers, extra)
		}
		if whole {
			p.Spec.Resources = resources[2].DeepCopy()
		}
	}
}
