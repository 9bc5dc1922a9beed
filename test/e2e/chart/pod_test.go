package chart

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"

	"spillway/test/framework/controlplane"
	"spillway/test/framework/exchange"
	"spillway/test/framework/process"
)

// serverName is what clients in the cluster call it.
const serverName = release + "." + namespace + ".svc"

// etc is where the rendered container finds its files.
const etc = "/etc/spillway/"

// pod is the container of a rendered chart as a process of this machine: its command, its files at
// another place, the rights of a token.
type pod struct {
	child        *process.Child
	log          *process.Log
	client       *http.Client
	api, metrics string // URLs
}

// podOf is the Pod that a Deployment or DaemonSet makes.
func podOf(t *testing.T, workload *unstructured.Unstructured) *unstructured.Unstructured {
	t.Helper()
	template, found, err := unstructured.NestedMap(workload.Object, "spec", "template")
	if err != nil || !found {
		t.Fatal("no template of a pod", err)
	}
	template["apiVersion"], template["kind"] = "v1", "Pod"
	p := &unstructured.Unstructured{Object: template}
	p.SetNamespace(namespace)
	return p
}

// startPod starts what a manifest says, to which kube-apiserver is what the token may do, and
// returns when it says where it serves. It ends with the test.
func startPod(t *testing.T, cp *controlplane.ControlPlane, program string, all []*unstructured.Unstructured,
	token string) *pod {
	t.Helper()
	dir := t.TempDir()
	there := func(path string) string { return strings.ReplaceAll(path, etc, dir+"/") }
	container := writeFiles(t, all, there)
	kubeconfig := filepath.Join(dir, "kubeconfig")
	must(t, controlplane.WriteKubeconfig(kubeconfig,
		&rest.Config{Host: cp.URL(), TLSClientConfig: rest.TLSClientConfig{CAData: cp.CA()}, BearerToken: token}))
	// off loopback, as in a pod
	args := []string{"--kubeconfig=" + kubeconfig, "--listen-tls=127.0.0.1:0", "--metrics-listen=0.0.0.0:0"}
	for _, arg := range container.Args {
		args = append(args, there(arg))
	}
	p := &pod{log: process.NewLog(t)}
	var err error
	p.child, err = process.Start(exec.Command(program, args...), nil, p.log.File)
	must(t, err)
	t.Cleanup(func() {
		p.child.Stop(time.Minute)
		if t.Failed() {
			p.log.Show(t)
		}
	})
	p.client = clientOf(t, pick(t, all, "ConfigMap", release+"-ca"))
	process.Awaiting(t, "the addresses in its log", func(context.Context) error {
		if p.child.Ended() {
			t.Fatal("it ended")
		}
		a := p.log.Addresses()
		if a.TLS == "" || a.Metrics == "" {
			return fmt.Errorf("none yet")
		}
		p.api, p.metrics = "https://"+a.TLS, "https://"+a.Metrics
		return nil
	})
	return p
}

// writeFiles writes what the container mounts to where it is here.
func writeFiles(t *testing.T, all []*unstructured.Unstructured, there func(string) string) container {
	t.Helper()
	c := containerOf(t, all)
	for _, mount := range c.VolumeMounts {
		write(t, there(mount.MountPath), filesOf(t, all, mount.Name), there)
	}
	return c
}

// container is what of one matters here.
type container struct {
	Image        string
	Args         []string
	VolumeMounts []struct{ Name, MountPath string }
}

func containerOf(t *testing.T, all []*unstructured.Unstructured) (c container) {
	t.Helper()
	list, _, err := unstructured.NestedSlice(podOf(t, pick(t, all, "Deployment", release)).Object, "spec", "containers")
	must(t, err)
	text, err := json.Marshal(list[0])
	must(t, err)
	must(t, json.Unmarshal(text, &c))
	return c
}

// filesOf are those of a volume, as its ConfigMap or Secret holds them.
func filesOf(t *testing.T, all []*unstructured.Unstructured, volume string) map[string]string {
	t.Helper()
	var spec struct {
		Spec struct {
			Volumes []struct {
				Name      string
				ConfigMap struct{ Name string }
				Secret    struct{ SecretName string }
			}
		}
	}
	text, err := podOf(t, pick(t, all, "Deployment", release)).MarshalJSON()
	must(t, err)
	must(t, json.Unmarshal(text, &spec))
	for _, v := range spec.Spec.Volumes {
		switch {
		case v.Name != volume:
		case v.ConfigMap.Name != "":
			data, _, err := unstructured.NestedStringMap(pick(t, all, "ConfigMap", v.ConfigMap.Name).Object, "data")
			must(t, err)
			return data
		default:
			return decoded(t, pick(t, all, "Secret", v.Secret.SecretName))
		}
	}
	t.Fatal("no volume ", volume)
	return nil
}

// decoded is what a Secret holds.
func decoded(t *testing.T, secret *unstructured.Unstructured) map[string]string {
	t.Helper()
	data, _, err := unstructured.NestedStringMap(secret.Object, "data")
	must(t, err)
	for key, value := range data {
		text, err := base64.StdEncoding.DecodeString(value)
		must(t, err)
		data[key] = string(text)
	}
	return data
}

func write(t *testing.T, dir string, files map[string]string, there func(string) string) {
	t.Helper()
	must(t, os.MkdirAll(dir, 0o700))
	for name, text := range files {
		must(t, os.WriteFile(filepath.Join(dir, name), []byte(there(text)), 0o600))
	}
}

// clientOf trusts the CA that the chart gives to clients, and that alone.
func clientOf(t *testing.T, ca *unstructured.Unstructured) *http.Client {
	t.Helper()
	text, _, err := unstructured.NestedString(ca.Object, "data", "ca.crt")
	must(t, err)
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM([]byte(text)) {
		t.Fatal("no certificate for clients")
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, ServerName: serverName}}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: 10 * time.Second}
}

// ready is an error while it is not.
func (p *pod) ready(ctx context.Context) error {
	status, _, err := p.get(ctx, p.metrics+"/readyz", "")
	if err == nil && status != http.StatusOK {
		err = fmt.Errorf("%d", status)
	}
	return err
}

// get sends a GET with a token, if there is one. fromMemory says that the answer is not
// kube-apiserver's.
func (p *pod) get(ctx context.Context, url, token string) (status int, fromMemory bool, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, false, err
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	a, err := p.client.Do(r)
	if err != nil {
		return 0, false, err
	}
	defer a.Body.Close()
	_, err = io.Copy(io.Discard, a.Body)
	return a.StatusCode, a.Header.Get(exchange.FlowControl) == "", err
}
