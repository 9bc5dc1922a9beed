package chart

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"

	"spillway/test/framework/process"
)

// What `helm test` runs is content with what the chart makes, and says what is wrong with what it
// would not have made.
func TestHelmTestReportsWhatIsWrong(t *testing.T) {
	cp := startControlPlane(t)
	h := newHelm(t)
	manifest, err := h.template(t.Context(),
		"--set=mirror.resources={deployments.apps,widgets.v1.example.com},config.memoryBudget=1Gi")
	must(t, err)
	_, err = cp.KubectlInput(t.Context(), manifest, "apply", "--server-side", "--force-conflicts", "-f=-")
	must(t, err)
	all := objects(t, manifest)
	token := tokenOf(t, cp, release)
	p := startPod(t, cp, process.BuildProxy(t), all, token)
	process.Awaiting(t, "it to be ready", p.ready)
	out, err := helmTest(t, all, p, token)
	if err != nil {
		t.Errorf("%v: %s", err, out)
	}
	for _, want := range []string{
		"ok      /livez: 200\n", "ok      /readyz: 200\n", "ok      /version: v1.",
		"ok      user: system:serviceaccount:" + namespace + ":" + release + "\n",
		"ok      /readyz?verbose: nothing is wrong\n",
		"ok      LIST deployments.apps: from memory, at resourceVersion ",
		"ok      LIST widgets.v1.example.com: from memory, at resourceVersion ",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("it does not say %q: %s", want, out)
		}
	}
	// with another certificate, by another authority
	manifest, err = h.template(t.Context(), "--set=mirror.resources={widgets.v1.example.com}")
	must(t, err)
	if out, err = helmTest(t, objects(t, manifest), p, token); err == nil || strings.Contains(out, "ok") ||
		!strings.Contains(out, "its certificate is not trusted") {
		t.Errorf("of an authority that it does not trust: %v, %s", err, out)
	}
	grant(t, cp, "nobody", []any{})
	if out, err = helmTest(t, all, p, tokenOf(t, cp, "nobody")); err == nil ||
		!strings.HasSuffix(out, ": 2 of 7 checks failed\n") ||
		!strings.Contains(out, "FAILED  LIST deployments.apps: 403 ") {
		t.Errorf("of somebody without rights: %v, %s", err, out)
	}
	if out, err = helmTest(t, all, p, "made.up"); err == nil || !strings.Contains(out, "a valid token of this cluster") {
		t.Errorf("of a token that is nobody's: %v, %s", err, out)
	}
	p.child.Stop(time.Minute)
	if out, err = helmTest(t, all, p, token); err == nil ||
		!strings.HasSuffix(out, ": 7 of 7 checks failed\n") || !strings.Contains(out, "FAILED  /livez: no answer: ") {
		t.Errorf("of what has ended: %v, %s", err, out)
	}
}

// helmTest runs the container of the rendered test pod, to which a pod is behind the Services, and
// returns what it printed. The error holds what it said on standard error.
func helmTest(t *testing.T, all []*unstructured.Unstructured, p *pod, token string) (string, error) {
	t.Helper()
	var pod corev1.Pod
	must(t, runtime.DefaultUnstructuredConverter.FromUnstructured(pick(t, all, "Pod", release+"-test").Object, &pod))
	dir := t.TempDir()
	files := map[string]string{accountToken: token}
	for _, mount := range pod.Spec.Containers[0].VolumeMounts {
		for _, v := range pod.Spec.Volumes {
			if v.Name != mount.Name {
				continue
			}
			held := decoded(t, pick(t, all, "Secret", v.Secret.SecretName).DeepCopy())
			for _, item := range v.Secret.Items {
				files[filepath.Join(mount.MountPath, item.Path)] = held[item.Key]
			}
		}
	}
	args := pod.Spec.Containers[0].Args
	for path, text := range files {
		here := filepath.Join(dir, path)
		must(t, os.MkdirAll(filepath.Dir(here), 0o700))
		must(t, os.WriteFile(here, []byte(text), 0o600))
		for i := range args {
			args[i] = strings.ReplaceAll(args[i], path, here)
		}
	}
	cmd := exec.CommandContext(t.Context(), process.BuildProxy(t), args...)
	cmd.Env = append(os.Environ(), "HTTPS_PROXY="+tunnel(t, p))
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	if err != nil {
		err = fmt.Errorf("%w: %s", err, stderr.String())
	}
	return stdout.String(), err
}

// accountToken is where the kubelet gives a pod the token of its service account.
const accountToken = "/var/run/secrets/kubernetes.io/serviceaccount/token"

// tunnel is an HTTP proxy that leads requests for the Services to a pod, as kube-proxy would.
func tunnel(t *testing.T, p *pod) string {
	t.Helper()
	metrics := strings.Replace(serverName, release, release+"-metrics", 1)
	targets := map[string]string{serverName + ":443": strings.TrimPrefix(p.api, "https://"),
		metrics + ":9464": strings.TrimPrefix(p.metrics, "https://")}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		target, ok := targets[r.Host]
		if r.Method != http.MethodConnect || !ok {
			http.Error(w, "there is no such Service", http.StatusBadGateway)
			return
		}
		there, err := net.Dial("tcp", target)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		defer there.Close()
		here, buffered, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer here.Close()
		_, _ = io.WriteString(here, "HTTP/1.1 200 OK\r\n\r\n")
		go func() {
			_, _ = io.Copy(there, buffered)
			_ = there.(*net.TCPConn).CloseWrite()
		}()
		_, _ = io.Copy(here, there)
	}))
	t.Cleanup(server.Close)
	return server.URL
}

// The test's pod is behind no Service, whose clients it would fail, and comes through the network
// policy.
func TestHelmTestIsAClient(t *testing.T) {
	h := newHelm(t)
	for _, values := range [][]string{{"--set=networkPolicy.enabled=true",
		`--set-json=networkPolicy.clients=[{"podSelector":{"matchLabels":{"a":"b"}}}]`,
		`--set-json=networkPolicy.metrics=[{"podSelector":{"matchLabels":{"a":"c"}}}]`}, {"--set=mode=sidecar"},
		{"--set=mode=sidecar,networkPolicy.enabled=true",
			`--set-json=networkPolicy.clients=[{"podSelector":{"matchLabels":{"a":"b"}}}]`}} {
		manifest, err := h.template(t.Context(), values...)
		must(t, err)
		all := objects(t, manifest)
		its := labels.Set(pick(t, all, "Pod", release+"-test").GetLabels())
		for _, o := range all {
			switch o.GetKind() {
			case "Service":
				selector, _, err := unstructured.NestedStringMap(o.Object, "spec", "selector")
				must(t, err)
				if labels.SelectorFromSet(selector).Matches(its) {
					t.Errorf("%v: it is behind the Service %s", values, o.GetName())
				}
			case "NetworkPolicy":
				var policy networkingv1.NetworkPolicy
				must(t, runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &policy))
				for _, rule := range policy.Spec.Ingress {
					if !slices.ContainsFunc(rule.From, func(p networkingv1.NetworkPolicyPeer) bool {
						return labels.SelectorFromSet(p.PodSelector.MatchLabels).Matches(its)
					}) {
						t.Errorf("it is kept out: %v", rule)
					}
				}
			}
		}
	}
}
