package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"spillway/test/framework/process"
)

// friends are the peers that the chart's NetworkPolicy is to admit, as JSON: the pods of namespaces
// with a label.
const friends = `[{"namespaceSelector": {"matchLabels": {"access": "spillway"}}}]`

// testNetworkPolicy enforces the chart's NetworkPolicy by nftables rules that are made of it,
// because none of the controllers that enforce policies runs on every kernel that these tests run
// on. Pods that it names reach the proxy and its metrics, other pods do not, and a proxy that
// begins again behind it becomes ready.
func (c *cluster) testNetworkPolicy(t *testing.T) {
	pods, err := c.pods(t.Context(), namespace, proxies)
	must(t, err)
	service := release + "." + namespace + ".svc.cluster.local:443"
	metrics := pods[0].Status.PodIP + ":9464"
	for name, access := range map[string]string{"friends": "spillway", "strangers": "none"} {
		_, err := c.client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"access": access}}}, metav1.CreateOptions{})
		must(t, err)
		t.Cleanup(func() {
			must(t, c.client.CoreV1().Namespaces().Delete(context.Background(), name, metav1.DeleteOptions{}))
		})
		p := template()
		p.Spec.ServiceAccountName, p.Spec.AutomountServiceAccountToken = "", ptr.To(false)
		p.Spec.Containers[0].Args = []string{"-dial", service, metrics}
		create(t, c.client, name, pod(p))
	}
	c.reaches(t, "friends", true, service, metrics)
	c.reaches(t, "strangers", true, service, metrics)

	c.enforce(t)
	c.reaches(t, "strangers", false, service, metrics)
	c.reaches(t, "friends", true, service, metrics)
	for _, pod := range pods {
		must(t, c.KillContainer(pod.Spec.NodeName, pod.Status.ContainerStatuses[0].ContainerID))
	}
	process.Awaiting(t, "the proxies to begin again", func(ctx context.Context) error {
		now, err := c.pods(ctx, namespace, proxies)
		if err != nil {
			return err
		}
		for i, pod := range now {
			before := pods[i].Status.ContainerStatuses[0].RestartCount
			if pod.Status.ContainerStatuses[0].RestartCount == before || !isReady(&pod) {
				return errNotYet
			}
		}
		return nil
	})
}

// reaches awaits that the pod of a namespace can connect to all addresses, or to none.
func (c *cluster) reaches(t *testing.T, namespace string, want bool, addresses ...string) {
	t.Helper()
	process.Awaiting(t, "the connections of "+namespace, func(ctx context.Context) error {
		pods, err := c.pods(ctx, namespace, selector)
		if err != nil {
			return err
		}
		if len(pods) != 1 {
			return errNotYet
		}
		last := map[string]string{}
		for line := range strings.Lines(c.log(t, &pods[0], app)) {
			var said struct{ Dialed, Error string }
			if json.Unmarshal([]byte(line), &said) == nil && said.Dialed != "" {
				last[said.Dialed] = said.Error
			}
		}
		for _, address := range addresses {
			if problem, tried := last[address]; !tried || (problem == "") != want {
				return fmt.Errorf("%s: %q", address, problem)
			}
		}
		return nil
	})
}

// enforce has all nodes enforce the release's NetworkPolicy for the pods that there are now, until
// the end of the test.
func (c *cluster) enforce(t *testing.T) {
	t.Helper()
	policy, err := c.client.NetworkingV1().NetworkPolicies(namespace).Get(t.Context(), release, metav1.GetOptions{})
	must(t, err)
	rules := c.rules(t, policy)
	nft := func(text string) {
		t.Helper()
		for _, name := range c.Nodes() {
			cmd, err := c.Command(name, "nft", "--file", "-")
			must(t, err)
			cmd.Stdin = strings.NewReader(text)
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("nft on %s: %v: %s\n%s", name, err, out, text)
			}
		}
	}
	nft(rules)
	t.Cleanup(func() { nft("delete table ip spillway") })
}

// rules are those of nftables that do what a NetworkPolicy says. A node's own packets to its pods
// are always let through, as every implementation does: these are probes.
func (c *cluster) rules(t *testing.T, policy *networkingv1.NetworkPolicy) string {
	t.Helper()
	pods, err := c.client.CoreV1().Pods("").List(t.Context(), metav1.ListOptions{})
	must(t, err)
	namespaces, err := c.client.CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{})
	must(t, err)
	labelsOf := map[string]labels.Set{}
	for _, ns := range namespaces.Items {
		labelsOf[ns.Name] = ns.Labels
	}
	matches := func(by *metav1.LabelSelector, set labels.Set) bool {
		s, err := metav1.LabelSelectorAsSelector(by)
		must(t, err)
		return s.Matches(set)
	}
	// peers are the addresses of the pods that a rule names.
	peers := func(of []networkingv1.NetworkPolicyPeer) (all []string) {
		for _, pod := range pods.Items {
			for _, peer := range of {
				near := peer.NamespaceSelector == nil && pod.Namespace == policy.Namespace ||
					peer.NamespaceSelector != nil && matches(peer.NamespaceSelector, labelsOf[pod.Namespace])
				if near && (peer.PodSelector == nil || matches(peer.PodSelector, pod.Labels)) && pod.Status.PodIP != "" {
					all = append(all, pod.Status.PodIP)
				}
			}
		}
		return all
	}
	var in, out strings.Builder
	for _, pod := range pods.Items {
		if pod.Namespace != policy.Namespace || !matches(&policy.Spec.PodSelector, pod.Labels) {
			continue
		}
		for _, rule := range policy.Spec.Ingress {
			from := ""
			if len(rule.From) > 0 {
				from = "ip saddr { 0.0.0.0, " + strings.Join(peers(rule.From), ", ") + " } " // no set may be empty
			}
			for _, port := range rule.Ports {
				fmt.Fprintf(&in, "ip daddr %s %s%s accept\n", pod.Status.PodIP, from, portMatch(&pod, port))
			}
		}
		for _, rule := range policy.Spec.Egress {
			for _, port := range rule.Ports {
				fmt.Fprintf(&out, "ip saddr %s %s accept\n", pod.Status.PodIP, portMatch(&pod, port))
			}
		}
		fmt.Fprintf(&in, "ip daddr %s reject\n", pod.Status.PodIP)
		fmt.Fprintf(&out, "ip saddr %s reject\n", pod.Status.PodIP)
	}
	const settled = "ct state established,related accept\n"
	return "table ip spillway {\n" +
		"chain ingress { type filter hook forward priority 10; " + settled + in.String() + "}\n" +
		"chain egress { type filter hook forward priority 11; " + settled + out.String() + "}\n" +
		"chain to-node { type filter hook input priority 11; " + settled + out.String() + "}\n}\n"
}

// portMatch is the part of a rule that is about a port; of a name it is the container's of that
// name.
func portMatch(pod *corev1.Pod, port networkingv1.NetworkPolicyPort) string {
	protocol := strings.ToLower(string(ptr.Deref(port.Protocol, corev1.ProtocolTCP)))
	number := port.Port.IntVal
	if port.Port.Type == intstr.String {
		for _, container := range pod.Spec.Containers {
			for _, p := range container.Ports {
				if p.Name == port.Port.StrVal {
					number = p.ContainerPort
				}
			}
		}
	}
	return fmt.Sprintf("%s dport %d", protocol, number)
}
