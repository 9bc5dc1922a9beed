package main

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

const (
	namespace = "default"
	first     = 20
	scaledUp  = 35
	scaledTo  = 5
)

// cycle is one life of a Deployment.
func (s *show) cycle(ctx context.Context, turn int) error {
	name := fmt.Sprintf("web-%d", turn)
	deployments := s.through.AppsV1().Deployments(namespace)
	if _, err := deployments.Create(ctx, deployment(name), metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create: %w", err)
	}
	if err := s.step(ctx, fmt.Sprintf("%d replicas scheduled", first), func() (bool, string) {
		return s.bound(ctx, name, first)
	}); err != nil {
		return err
	}
	if err := s.step(ctx, fmt.Sprintf("%d replicas available", first), func() (bool, string) {
		return s.available(ctx, name, first)
	}); err != nil {
		return err
	}
	for _, replicas := range []int32{scaledUp, scaledTo} {
		if err := s.scale(ctx, name, replicas); err != nil {
			return err
		}
	}
	if err := s.rollOut(ctx, name); err != nil {
		return err
	}
	policy := []metav1.DeletionPropagation{metav1.DeletePropagationBackground, metav1.DeletePropagationForeground}[turn%2]
	if err := deployments.Delete(ctx, name, metav1.DeleteOptions{PropagationPolicy: &policy}); err != nil {
		return fmt.Errorf("delete: %w", err)
	}
	return s.step(ctx, fmt.Sprintf("deleted and collected (%s)", policy), func() (bool, string) {
		return s.gone(ctx, name)
	})
}

func deployment(name string) *appsv1.Deployment {
	labels := map[string]string{"app": name}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels},
		Spec: appsv1.DeploymentSpec{
			Replicas: new(int32(first)),
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "example.com/c:1"}}},
			},
		},
	}
}

func (s *show) scale(ctx context.Context, name string, replicas int32) error {
	wanted := &autoscalingv1.Scale{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace},
		Spec: autoscalingv1.ScaleSpec{Replicas: replicas}}
	if _, err := s.through.AppsV1().Deployments(namespace).UpdateScale(ctx, name, wanted,
		metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("scale to %d: %w", replicas, err)
	}
	return s.step(ctx, fmt.Sprintf("scaled to %d", replicas), func() (bool, string) {
		return s.available(ctx, name, replicas)
	})
}

func (s *show) rollOut(ctx context.Context, name string) error {
	patch := []byte(`{"spec":{"template":{"spec":{"containers":[{"name":"c","image":"example.com/c:2"}]}}}}`)
	changed, err := s.through.AppsV1().Deployments(namespace).Patch(ctx, name, "application/strategic-merge-patch+json",
		patch, metav1.PatchOptions{})
	if err != nil {
		return fmt.Errorf("roll out: %w", err)
	}
	return s.step(ctx, "rolled out", func() (bool, string) {
		d, err := s.through.AppsV1().Deployments(namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}
		done := d.Status.ObservedGeneration >= changed.Generation && d.Status.UpdatedReplicas == scaledTo &&
			d.Status.AvailableReplicas == scaledTo && d.Status.Replicas == scaledTo
		return done, fmt.Sprintf("%+v", d.Status)
	})
}

// bound reports that so many pods are bound to our node. Listed from any state, so from the proxy's
// memory.
func (s *show) bound(ctx context.Context, name string, want int) (bool, string) {
	pods, err := s.pods(ctx, s.through, name, "0")
	if err != nil {
		return false, err.Error()
	}
	bound := 0
	for _, p := range pods {
		if p.Spec.NodeName == nodeName {
			bound++
		}
	}
	return bound == want, fmt.Sprintf("%d of %d pods bound", bound, len(pods))
}

// available reports that the Deployment says so, and that both the proxy and the API server hold
// just so many pods.
func (s *show) available(ctx context.Context, name string, want int32) (bool, string) {
	d, err := s.through.AppsV1().Deployments(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return false, err.Error()
	}
	for _, side := range []kubernetes.Interface{s.through, s.direct} {
		pods, err := s.pods(ctx, side, name, "0")
		if err != nil {
			return false, err.Error()
		}
		if len(pods) != int(want) {
			return false, fmt.Sprintf("%d pods, expected %d", len(pods), want)
		}
	}
	return d.Status.AvailableReplicas == want && d.Status.Replicas == want, fmt.Sprintf("%+v", d.Status)
}

func (s *show) pods(ctx context.Context, side kubernetes.Interface, name, rv string) ([]corev1.Pod, error) {
	list, err := side.CoreV1().Pods(namespace).List(
		ctx, metav1.ListOptions{LabelSelector: "app=" + name, ResourceVersion: rv})
	if err != nil {
		return nil, err
	}
	return list.Items, nil
}

// gone reports that nothing of the Deployment is left, on either side.
func (s *show) gone(ctx context.Context, name string) (bool, string) {
	options := metav1.ListOptions{LabelSelector: "app=" + name}
	for _, side := range []kubernetes.Interface{s.through, s.direct} {
		d, err := side.AppsV1().Deployments(namespace).List(ctx, options)
		if err != nil {
			return false, err.Error()
		}
		rs, err := side.AppsV1().ReplicaSets(namespace).List(ctx, options)
		if err != nil {
			return false, err.Error()
		}
		pods, err := s.pods(ctx, side, name, "")
		if err != nil {
			return false, err.Error()
		}
		if len(d.Items)+len(rs.Items)+len(pods) > 0 {
			return false, fmt.Sprintf("%d deployments, %d replica sets, %d pods left", len(d.Items), len(rs.Items), len(pods))
		}
	}
	return true, ""
}
