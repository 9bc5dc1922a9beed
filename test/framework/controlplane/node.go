package controlplane

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// MakeNode creates a Node that is Ready and has plenty of everything, so that the scheduler binds
// pods to it. There is no kubelet: the pods stay Pending, bound to it, and deleting them needs a
// grace period of 0.
func (cp *ControlPlane) MakeNode(ctx context.Context, name string) (*corev1.Node, error) {
	client, err := cp.admin()
	if err != nil {
		return nil, err
	}
	nodes := client.CoreV1().Nodes()
	if _, err := nodes.Create(ctx, readyNode(name), metav1.CreateOptions{}); err != nil {
		return nil, fmt.Errorf("cannot create node %s: %w", name, err)
	}
	// Admission taints every new node as not ready; the controller that would take the taint off is
	// not running.
	node, err := nodes.Patch(ctx, name, types.MergePatchType, []byte(`{"spec":{"taints":null}}`), metav1.PatchOptions{})
	if err != nil {
		return nil, fmt.Errorf("cannot remove the taints of node %s: %w", name, err)
	}
	return node, nil
}

func readyNode(name string) *corev1.Node {
	room := corev1.ResourceList{
		corev1.ResourceCPU:              resource.MustParse("1000"),
		corev1.ResourceMemory:           resource.MustParse("1Ti"),
		corev1.ResourceEphemeralStorage: resource.MustParse("1Ti"),
		corev1.ResourcePods:             resource.MustParse("10000"),
	}
	now := metav1.Now()
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
			corev1.LabelHostname:   name,
			corev1.LabelOSStable:   "linux",
			corev1.LabelArchStable: "amd64",
		}},
		Status: corev1.NodeStatus{
			Capacity:    room,
			Allocatable: room,
			Conditions: []corev1.NodeCondition{{
				Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "MadeByHand",
				LastHeartbeatTime: now, LastTransitionTime: now,
			}},
			Addresses: []corev1.NodeAddress{{Type: corev1.NodeHostName, Address: name}},
		},
	}
}
