package inject

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"spillway/test/framework/process"
)

// TestNoPodIsKeptFromBeingCreatedAtRandom: neither is any pod of a random shape in a namespace of a
// random policy.
func TestNoPodIsKeptFromBeingCreatedAtRandom(t *testing.T) {
	const namespaces, pods = 60, 12
	c := newCluster(t)
	r := rand.New(rand.NewPCG(1, 2))
	var names []string
	for i := range namespaces {
		p := policy{name: fmt.Sprint("random-", i), ranges: randomRanges(r)}
		if r.IntN(2) == 0 {
			p.quotas = []quota{randomQuota(r), randomQuota(r)}
		}
		if err := c.tryApply(t, p); err == nil { // some make no sense to kube-apiserver
			names = append(names, p.name)
		}
	}
	c.register(t, c.startWebhook(t))
	client := c.warned(t)
	_, err := client.CoreV1().ServiceAccounts("default").Create(t.Context(),
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}, metav1.CreateOptions{})
	must(t, err)
	process.Awaiting(t, "kube-apiserver to know the webhook", func(context.Context) error {
		if pod, err := client.try(t, "default", func(*corev1.Pod) {}, asked); err != nil ||
			len(pod.Spec.InitContainers) != 1 {
			return errors.Join(errors.New("not yet"), err)
		}
		return nil
	})
	counts := map[string]int{}
	for _, name := range names {
		for range pods {
			change := randomShape(r)
			without, err := client.try(t, name, change, nil)
			if err != nil {
				counts["refused as they are"]++
				continue
			}
			with, err := client.try(t, name, change, asked)
			switch {
			case err != nil:
				t.Errorf("in %s: %v: %+v", name, err, without.Spec.Containers[0].Resources)
			case len(with.Spec.InitContainers) > len(without.Spec.InitContainers):
				counts["with a sidecar"]++
				if without.Status.QOSClass == corev1.PodQOSGuaranteed && with.Status.QOSClass != corev1.PodQOSGuaranteed {
					t.Errorf("in %s: no longer Guaranteed: %+v", name, without.Spec)
				}
			case len(client.warnings) > 0:
				counts["with a warning"]++
			default:
				t.Errorf("in %s: neither a sidecar nor a warning", name)
			}
		}
	}
	t.Logf("%d namespaces: %v", len(names), counts)
	if counts["with a sidecar"] < 100 || counts["with a warning"] < 30 {
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
		of.Max, of.Min = randomList(r, []string{"600m", "2", "4"}, []string{"200Mi", "500Mi", "2Gi"}),
			randomList(r, smallCPU, smallMemory)
	}
	if r.IntN(5) == 0 {
		of.MaxLimitRequestRatio = randomList(r, []string{"5", "20"}, []string{"2", "5"})
	}
	return []corev1.LimitRangeItem{item, of}
}

func randomQuota(r *rand.Rand) quota {
	q := quota{hard: corev1.ResourceList{}, used: corev1.ResourceList{}}
	for _, pair := range []string{"requests.cpu=1", "limits.cpu=3", "requests.memory=1Gi", "limits.memory=2Gi", "cpu=1",
		"memory=1Gi", "pods=10"} {
		name, hard, _ := strings.Cut(pair, "=")
		if r.IntN(5) > 0 {
			continue
		}
		used := map[string][]string{"1": {"0", "900m", "960m"}, "3": {"0", "2500m", "2800m"},
			"1Gi": {"0", "900Mi", "970Mi"}, "2Gi": {"0", "1700Mi", "1900Mi"}, "10": {"0", "9"}}[hard]
		q.hard[corev1.ResourceName(name)], q.used[corev1.ResourceName(name)] = resource.MustParse(hard),
			resource.MustParse(pick(r, used...))
	}
	if r.IntN(3) == 0 && len(q.hard) > 0 {
		q.scopes = []corev1.ResourceQuotaScope{corev1.ResourceQuotaScope(pick(r, "NotBestEffort", "NotTerminating",
			"Terminating"))}
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
				smallMemory...))}
		}
		resources = append(resources, all)
	}
	inits, always, whole := r.IntN(3), r.IntN(2) == 0, r.IntN(4) == 0
	return func(p *corev1.Pod) {
		p.Spec.Containers[0].Resources = resources[0]
		for i := range inits {
			extra := corev1.Container{Name: fmt.Sprint("init-", i), Image: "init", Resources: resources[i]}
			if always && i == 0 {
				extra.Name, extra.RestartPolicy = "istio-proxy", ptr.To(corev1.ContainerRestartPolicyAlways)
			}
			p.Spec.InitContainers = append(p.Spec.InitContainers, extra)
		}
		if whole {
			p.Spec.Resources = &resources[2]
		}
	}
}
