package inject

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"spillway/test/framework/controlplane"
	"spillway/test/framework/process"
)

// webhook is `spillway webhook`, running.
type webhook struct {
	child *process.Child
	url   string
	ca    []byte
}

// startWebhook starts one that follows the cluster, if there is one.
func (c *cluster) startWebhook(t *testing.T, args ...string) *webhook {
	t.Helper()
	follow := "--namespace-limits=ignore"
	if c.ControlPlane != nil {
		follow = "--kubeconfig=" + c.Kubeconfig(controlplane.Admin)
	}
	dir := t.TempDir()
	w := &webhook{ca: writePair(t, dir)}
	log := process.NewLog(t)
	var err error
	w.child, err = process.Start(exec.Command(c.spillway,
		append([]string{"webhook", "--listen=127.0.0.1:0", "--image=spillway:1", follow,
			"--tls-cert-file=" + filepath.Join(dir, "tls.crt"), "--tls-private-key-file=" + filepath.Join(dir, "tls.key")},
			args...)...), nil, log.File)
	must(t, err)
	t.Cleanup(func() {
		w.child.Stop(20 * time.Second)
		if t.Failed() {
			log.Show(t)
		}
	})
	process.Awaiting(t, "the webhook's address", func(context.Context) error {
		for text := range bytes.Lines(log.Text()) {
			var entry struct{ Msg, Address string }
			if json.Unmarshal(text, &entry) == nil && entry.Msg == "serving admission reviews" {
				w.url = "https://" + entry.Address + "/inject"
				return nil
			}
		}
		return errors.New("none yet")
	})
	return w
}

// writePair makes a certificate for loopback.
func writePair(t *testing.T, dir string) (certificate []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "kube-apiserver"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		IsCA:        true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	must(t, err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	must(t, err)
	certificate = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	must(t, os.WriteFile(filepath.Join(dir, "tls.crt"), certificate, 0o600))
	must(t, os.WriteFile(filepath.Join(dir, "tls.key"),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}), 0o600))
	return certificate
}

// admissionConfig is an AdmissionConfiguration by which kube-apiserver shows webhooks on loopback a
// certificate, which vouches for itself.
func admissionConfig(t *testing.T) (file, certificate string) {
	t.Helper()
	dir := t.TempDir()
	writePair(t, dir)
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		must(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	certificate = filepath.Join(dir, "tls.crt")
	kubeconfig := write("kubeconfig",
		"apiVersion: v1\nkind: Config\nusers:\n- name: \"*\"\n  user:\n    client-certificate: "+certificate+
			"\n    client-key: "+filepath.Join(dir, "tls.key")+"\n")
	return write("admission.yaml",
		"apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\nplugins:\n- name: "+
			"MutatingAdmissionWebhook\n  configuration:\n"+
			"    apiVersion: apiserver.config.k8s.io/v1\n    kind: WebhookAdmissionConfiguration\n    kubeConfigFile: "+
			kubeconfig+"\n"), certificate
}

// TestWebhookOfAPIServersAlone: a webhook with --client-ca-file answers a kube-apiserver that has a
// certificate, as kube-apiserver shows it, and no other client; a pod that is more than it looks at
// is created without a sidecar, with a warning.
func TestWebhookOfAPIServersAlone(t *testing.T) {
	config, certificate := admissionConfig(t)
	c := newClusterWith(t, controlplane.Options{ServiceAccountAdmission: true,
		APIServerArgs: []string{"--admission-control-config-file=" + config}})
	w := c.startWebhook(t, "--client-ca-file="+certificate, "--client-allowed-names=kube-apiserver")
	c.register(t, w)
	client := c.warned(t)
	create := func(name string, containers int) *corev1.Pod {
		t.Helper()
		client.warnings = nil
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace,
				Labels: map[string]string{"spillway.example.com/inject": "enabled"}},
			Spec: corev1.PodSpec{ServiceAccountName: account},
		}
		for i := range containers {
			pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: fmt.Sprint("app-", i), Image: "app"})
		}
		pod, err := client.CoreV1().Pods(namespace).Create(t.Context(), pod,
			metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		must(t, err)
		return pod
	}
	process.Awaiting(t, "kube-apiserver to know the webhook", func(context.Context) error {
		if len(create("app", 1).Spec.InitContainers) == 1 {
			return nil
		}
		return errors.New("not yet")
	})
	if pod := create("most", 128); len(pod.Spec.InitContainers) != 1 || len(client.warnings) > 0 {
		t.Errorf("with 128 containers: %d, %q", len(pod.Spec.InitContainers), client.warnings)
	}
	for containers, warning := range map[int]string{129: "has 129 containers, of at most 128", 20_000: "its review "} {
		pod := create("more", containers)
		if len(pod.Spec.InitContainers) != 0 || len(client.warnings) != 1 ||
			!strings.HasPrefix(client.warnings[0], "spillway: not injected: "+warning) {
			t.Errorf("with %d containers: %d, %q", containers, len(pod.Spec.InitContainers), client.warnings)
		}
	}
	if answer, code, err := ask(t.Context(), w.clientOf(t), w.url, reviewOf(goodPod(0), "")); err != nil ||
		code != http.StatusForbidden {
		t.Errorf("a client without a certificate: %v, %d, %+v", err, code, answer)
	}
}

// register has kube-apiserver send the webhook reviews of pods with the label, until the test ends.
func (c *cluster) register(t *testing.T, w *webhook) {
	t.Helper()
	ignore, none, seconds := admissionregistrationv1.Ignore, admissionregistrationv1.SideEffectClassNone, int32(10)
	_, err := c.client.AdmissionregistrationV1().MutatingWebhookConfigurations().Create(t.Context(),
		&admissionregistrationv1.MutatingWebhookConfiguration{
			ObjectMeta: metav1.ObjectMeta{Name: "spillway"},
			Webhooks: []admissionregistrationv1.MutatingWebhook{{
				Name:         "pods.spillway.example.com",
				ClientConfig: admissionregistrationv1.WebhookClientConfig{URL: &w.url, CABundle: w.ca},
				Rules: []admissionregistrationv1.RuleWithOperations{{
					Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
					Rule: admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"},
						Resources: []string{"pods"}},
				}},
				ObjectSelector: &metav1.LabelSelector{
					MatchLabels: map[string]string{"spillway.example.com/inject": "enabled"}},
				FailurePolicy:           &ignore,
				SideEffects:             &none,
				TimeoutSeconds:          &seconds,
				AdmissionReviewVersions: []string{"v1"},
			}},
		}, metav1.CreateOptions{})
	must(t, err)
	t.Cleanup(func() {
		must(t, c.client.AdmissionregistrationV1().MutatingWebhookConfigurations().Delete(context.Background(), "spillway",
			metav1.DeleteOptions{}))
	})
}

// warningRecorder is a client that keeps the warnings that it receives.
type warningRecorder struct {
	*kubernetes.Clientset
	warnings []string
}

func (w *warningRecorder) HandleWarningHeader(_ int, _, text string) {
	w.warnings = append(w.warnings, text)
}

func (c *cluster) warned(t *testing.T) *warningRecorder {
	t.Helper()
	w := &warningRecorder{}
	config := rest.CopyConfig(c.Config(controlplane.Admin))
	config.WarningHandler = w
	var err error
	w.Clientset, err = kubernetes.NewForConfig(config)
	must(t, err)
	return w
}

// asksWebhook: a pod with the label gets a sidecar when it is created, and its program, unmodified,
// talks to that; others stay as they are, and none is kept from being created.
func (c *cluster) asksWebhook(t *testing.T) {
	ports := freePorts(t)
	w := c.startWebhook(t, "--port="+ports[0], "--health-port="+ports[1])
	c.register(t, w)
	client := c.warned(t)
	one := int64(1000)
	create := func(name string, change func(*corev1.Pod)) *corev1.Pod {
		t.Helper()
		client.warnings = nil
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace,
				Labels: map[string]string{"spillway.example.com/inject": "enabled"}},
			Spec: corev1.PodSpec{ServiceAccountName: account, Containers: []corev1.Container{{
				Name: "app", Image: "app", SecurityContext: &corev1.SecurityContext{RunAsUser: &one},
				Env: []corev1.EnvVar{{Name: "A", Value: "it's here"}},
			}}},
		}
		if change != nil {
			change(pod)
		}
		pod, err := client.CoreV1().Pods(namespace).Create(t.Context(), pod, metav1.CreateOptions{})
		must(t, err)
		return pod
	}
	var injected *corev1.Pod
	// it learns of it by a watch
	process.Awaiting(t, "kube-apiserver to know the webhook", func(ctx context.Context) error {
		injected = create("injected", nil)
		if injected.Annotations["spillway.example.com/injected"] == "true" {
			return nil
		}
		must(t, client.CoreV1().Pods(namespace).Delete(ctx, injected.Name, *metav1.NewDeleteOptions(0)))
		return errors.New("not yet")
	})
	if len(client.warnings) > 0 {
		t.Errorf("warnings: %v", client.warnings)
	}
	p := c.start(t, injected, ports)
	p.serves("by-webhook")

	for name, change := range map[string]func(*corev1.Pod){
		"without-label": func(p *corev1.Pod) { p.Labels = nil },
		"opted-out":     func(p *corev1.Pod) { p.Annotations = map[string]string{"spillway.example.com/inject": "disabled"} },
	} {
		if pod := create(name, change); len(pod.Spec.InitContainers) > 0 || len(client.warnings) > 0 {
			t.Errorf("%s: %v, %v", name, pod.Spec.InitContainers, client.warnings)
		}
	}
	for name, c := range map[string]struct {
		change  func(*corev1.Pod)
		warning string
	}{
		"of-the-node": {func(p *corev1.Pod) { p.Spec.HostNetwork = true }, "is in the network of its node (hostNetwork)"},
		"without-account": {func(p *corev1.Pod) { p.Spec.AutomountServiceAccountToken = new(bool) },
			"its containers are given no token of a service account"},
	} {
		pod := create(name, c.change)
		if len(pod.Spec.InitContainers) > 0 || !slices.ContainsFunc(client.warnings, func(text string) bool {
			return strings.HasPrefix(text, "spillway: not injected: "+c.warning)
		}) {
			t.Errorf("%s: %v, %v", name, pod.Spec.InitContainers, client.warnings)
		}
	}

	w.child.Stop(20 * time.Second)
	if w.child.Err != nil {
		t.Errorf("the webhook ended with %v", w.child.Err)
	}
	if pod := create("without-webhook", nil); len(pod.Spec.InitContainers) > 0 {
		t.Error("not injected by the webhook")
	}
}
