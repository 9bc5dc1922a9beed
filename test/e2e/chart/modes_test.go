package chart

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"

	"spillway/test/framework/controlplane"
	"spillway/test/framework/process"
)

func TestModesWorkAsRendered(t *testing.T) {
	cp := startControlPlane(t)
	t.Run("sidecar", func(t *testing.T) { addsSidecars(t, cp) })
	t.Run("loadShedding", func(t *testing.T) { shedsLoad(t, cp) })
}

// What the sidecar shape renders, run with its arguments, gives a sidecar to the pods that it
// names: those with the label and those in namespaces with it, and to no others. It may read
// LimitRanges and ResourceQuotas, by which it sizes them, and needs no other right.
func addsSidecars(t *testing.T, cp *controlplane.ControlPlane) {
	t.Helper()
	manifest, err := newHelm(t).template(t.Context(),
		"--set=mode=sidecar,sidecar.extraArgs={--history-bytes=8Mi}",
		"--set=sidecar.resources.limits.memory=256Mi,sidecar.resources.limits.cpu=2",
		"--set-string=image.tag=7,image.registry=registry.test")
	must(t, err)
	all := objects(t, manifest)
	rules, _, err := unstructured.NestedSlice(pick(t, all, "ClusterRole", namespace+":"+release).Object, "rules")
	must(t, err)
	if text := fmt.Sprint(rules); text != "[map[apiGroups:[] resources:[limitranges resourcequotas] verbs:[get list "+
		"watch]]]" {
		t.Errorf("its rights are %s", text)
	}
	if _, err := cp.Kubectl(t.Context(), "create", "namespace", namespace); err != nil && !strings.Contains(err.Error(),
		"AlreadyExists") {
		t.Fatal(err)
	}
	grant(t, cp, "sizing", rules)
	configuration := pick(t, all, "MutatingWebhookConfiguration", namespace+"."+release)
	url := startWebhook(t, all, cp, tokenOf(t, cp, "sizing"))
	const good = "ok      /livez: 200\nok      /readyz: 200\n"
	if out, err := helmTest(t, all, &pod{api: url}, ""); err != nil || out != good {
		t.Errorf("helm test: %v, %s", err, out)
	}
	reach(t, configuration, url, decoded(t, pick(t, all, "Secret", release+"-tls"))["tls.crt"])
	text, err := configuration.MarshalJSON()
	must(t, err)
	_, err = cp.KubectlInput(t.Context(), string(text), "create", "-f=-")
	must(t, err)
	_, err = cp.Kubectl(t.Context(), "create", "namespace", "chosen")
	must(t, err)
	_, err = cp.Kubectl(t.Context(), "label", "namespace", "chosen", "spillway.example.com/inject=enabled")
	must(t, err)
	process.Awaiting(t, "kube-apiserver to know the webhook and the namespace", func(context.Context) error {
		if arguments(t, cp, "default", "enabled") == nil || arguments(t, cp, "chosen", "") == nil {
			return errors.New("not yet")
		}
		return nil
	})
	if image := containerOf(t, all).Image; image != "registry.test/spillway:7" {
		t.Errorf("its image is %s", image)
	}
	if args := strings.Join(arguments(t, cp, "default", "enabled"), " "); !strings.Contains(args, "--history-bytes=8Mi") {
		t.Errorf("its flags are %s", args)
	}
	small := `{"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "small", "namespace": "chosen"},
	"spec": {"limits": [{"type": "Container", "max": {"memory": "32Mi"}}]}}`
	_, err = cp.KubectlInput(t.Context(), small, "create", "-f=-")
	must(t, err)
	process.Awaiting(t, "the webhook to know the LimitRange", func(context.Context) error {
		if arguments(t, cp, "chosen", "") != nil {
			return errors.New("not yet")
		}
		return nil
	})
	for _, c := range []struct{ namespace, label string }{{"default", ""}, {"default", "disabled"},
		{"chosen", "disabled"}} {
		if args := arguments(t, cp, c.namespace, c.label); args != nil {
			t.Errorf("in namespace %s with label %q there is a sidecar: %v", c.namespace, c.label, args)
		}
	}
}

// arguments are those of the sidecar of a pod that would be created with a label; nil if there
// would be none.
func arguments(t *testing.T, cp *controlplane.ControlPlane, namespace, label string) []string {
	t.Helper()
	const mount = `[{"name": "kube-api-access-x", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"}]`
	pod := fmt.Sprintf(`{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "namespace": %q, "labels": {"spillway.example.com/inject": %q}}, "spec": {
		"containers": [{"name": "a", "image": "a", "volumeMounts": %s}], "volumes": [{"name": "kube-api-access-x", "emptyDir": {}}]}}`, namespace, label, mount)
	text, err := cp.KubectlInput(t.Context(), pod, "create", "--dry-run=server", "--output=json", "-f=-")
	must(t, err)
	containers, _, err := unstructured.NestedSlice(objects(t, text)[0].Object, "spec", "initContainers")
	must(t, err)
	if len(containers) == 0 {
		return nil
	}
	args, _, err := unstructured.NestedStringSlice(containers[0].(map[string]any), "args")
	must(t, err)
	return args
}

// startWebhook runs what a manifest says, to which kube-apiserver is what the token may do, and
// returns where it serves.
func startWebhook(t *testing.T, all []*unstructured.Unstructured, cp *controlplane.ControlPlane,
	token string) (url string) {
	t.Helper()
	dir := t.TempDir()
	there := func(path string) string { return strings.ReplaceAll(path, etc, dir+"/") }
	args := []string{}
	for _, arg := range writeFiles(t, all, there).Args {
		args = append(args, there(arg))
	}
	kubeconfig := filepath.Join(dir, "kubeconfig")
	must(t, controlplane.WriteKubeconfig(kubeconfig,
		&rest.Config{Host: cp.URL(), TLSClientConfig: rest.TLSClientConfig{CAData: cp.CA()}, BearerToken: token}))
	args = append(args, "--listen=127.0.0.1:0", "--kubeconfig="+kubeconfig) // the last wins
	log := process.NewLog(t)
	child, err := process.Start(exec.Command(process.BuildProxy(t), args...), nil, log.File)
	must(t, err)
	t.Cleanup(func() {
		child.Stop(time.Minute)
		if t.Failed() {
			log.Show(t)
		}
	})
	process.Awaiting(t, "the webhook's address", func(context.Context) error {
		if child.Ended() {
			log.Show(t)
			t.Fatal("it ended")
		}
		for text := range bytes.Lines(log.Text()) {
			var entry struct{ Msg, Address string }
			if json.Unmarshal(text, &entry) == nil && entry.Msg == "serving admission reviews" {
				url = "https://" + entry.Address
				return nil
			}
		}
		return errors.New("none yet")
	})
	return url
}

// reach has kube-apiserver find a webhook here, where there is no Service to find it by;
// certificate is the one that it shows, which must be the Service's by what the configuration
// trusts.
func reach(t *testing.T, configuration *unstructured.Unstructured, url, certificate string) {
	t.Helper()
	webhooks, _, err := unstructured.NestedSlice(configuration.Object, "webhooks")
	must(t, err)
	for _, w := range webhooks {
		config := w.(map[string]any)["clientConfig"].(map[string]any)
		service := config["service"].(map[string]any)
		name := fmt.Sprintf("%s.%s.svc", service["name"], service["namespace"])
		ca, err := base64.StdEncoding.DecodeString(config["caBundle"].(string))
		must(t, err)
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM(ca)
		block, _ := pem.Decode([]byte(certificate))
		leaf, err := x509.ParseCertificate(block.Bytes)
		must(t, err)
		if _, err := leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: name}); err != nil {
			t.Errorf("kube-apiserver would not believe it: %v", err)
		}
		config["url"] = url + service["path"].(string)
		delete(config, "service")
	}
	must(t, unstructured.SetNestedSlice(configuration.Object, webhooks, "webhooks"))
}

// What mode loadShedding renders, run with its arguments, serves reads from memory while it answers
// 429 to a client that sends the API server too many requests.
func shedsLoad(t *testing.T, cp *controlplane.ControlPlane) {
	t.Helper()
	manifest, err := newHelm(t).template(t.Context(),
		"--set=mode=loadShedding,mirror.resources={configmaps},config.memoryBudget=1Gi",
		"--set=config.maxPassthroughBurstPerUser=3,loadShedding.limits.maxPassthroughQPSPerUser=0.01")
	must(t, err)
	_, err = cp.KubectlInput(t.Context(), manifest, "apply", "--server-side", "--force-conflicts", "-f=-")
	must(t, err)
	p := startPod(t, cp, process.BuildProxy(t), objects(t, manifest), tokenOf(t, cp, release))
	process.Awaiting(t, "it to be ready", p.ready)
	token := cp.Config(controlplane.Admin).BearerToken
	codes := map[int]int{}
	for range 10 {
		status, _, err := p.get(t.Context(), p.api+"/api/v1/namespaces/default/secrets", token)
		must(t, err)
		codes[status]++
	}
	if codes[http.StatusOK] != 3 || codes[http.StatusTooManyRequests] != 7 {
		t.Errorf("of ten requests that pass through: %v; want 3 answered and 7 shed", codes)
	}
	for range 10 {
		status, fromMemory, err := p.get(t.Context(), p.api+mirrored["configmaps"]+"?resourceVersion=0", token)
		must(t, err)
		if status != http.StatusOK || !fromMemory {
			t.Errorf("from memory: %d, %t", status, fromMemory)
		}
	}
}
