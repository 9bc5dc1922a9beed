package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"spillway/test/framework/process"
)

// monitors is the resource of the Prometheus operator that the chart makes one of.
const monitors = "/apis/monitoring.coreos.com/v1/namespaces/" + namespace + "/servicemonitors/" + release

// defineServiceMonitors makes the resource; the operator is not here.
func (c *cluster) defineServiceMonitors(t *testing.T) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "crd.yaml")
	must(t, os.WriteFile(file, []byte(`apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: servicemonitors.monitoring.coreos.com}
spec:
  group: monitoring.coreos.com
  scope: Namespaced
  names: {plural: servicemonitors, singular: servicemonitor, kind: ServiceMonitor}
  versions: [{name: v1, served: true, storage: true,
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}]
`), 0o600))
	c.kubectl(t, "apply", "--filename="+file)
	c.kubectl(t, "wait", "--for=condition=Established", "crd/servicemonitors.monitoring.coreos.com", "--timeout="+patience)
}

// testPrometheus runs Prometheus on a node, with what the Prometheus operator makes of the chart's
// ServiceMonitor, and has it scrape all pods.
func (c *cluster) testPrometheus(t *testing.T) {
	const listen = "10.123.0.1:9090"
	dir := t.TempDir()
	files := map[string]string{
		"token": c.token(t, metav1.NamespaceDefault, account), "ca.crt": string(c.authority(t)),
		"prometheus.yaml": c.scrapeConfig(t, dir),
	}
	for name, text := range files {
		must(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	cmd, err := c.Command(c.Nodes()[0], filepath.Join(c.root, "bin", "tools", "prometheus"),
		"--config.file="+filepath.Join(dir, "prometheus.yaml"), "--storage.tsdb.path="+filepath.Join(dir, "data"),
		"--web.listen-address="+listen, "--web.enable-lifecycle", "--log.level=warn")
	must(t, err)
	child, err := process.Start(cmd, nil, t.Output())
	must(t, err)
	client := &http.Client{Transport: &http.Transport{DialContext: c.Dial, DisableKeepAlives: true}}
	defer func() {
		response, err := client.Post("http://"+listen+"/-/quit", "", nil)
		must(t, err)
		response.Body.Close()
		<-child.Done
	}()
	process.Awaiting(t, "both pods to be scraped", func(ctx context.Context) error {
		for query, want := range map[string]int{`up == 1`: 2, `spillway_watches{resource="configmaps"}`: 2} {
			n, err := results(ctx, client, "http://"+listen, query)
			if err != nil {
				return err
			}
			if n != want {
				return fmt.Errorf("%s has %d results, want %d", query, n, want)
			}
		}
		return nil
	})
}

// scrapeConfig is what the Prometheus operator makes of the ServiceMonitor, as far as it has
// fields.
func (c *cluster) scrapeConfig(t *testing.T, dir string) string {
	t.Helper()
	text, err := c.client.Discovery().RESTClient().Get().AbsPath(monitors).DoRaw(t.Context())
	must(t, err)
	var monitor struct {
		Spec struct {
			Selector  metav1.LabelSelector
			Endpoints []struct {
				Port, Scheme, Interval string
				TLSConfig              struct{ ServerName string }
			}
		}
	}
	must(t, json.Unmarshal(text, &monitor))
	if n := len(monitor.Spec.Endpoints); n != 1 {
		t.Fatalf("the ServiceMonitor has %d endpoints", n)
	}
	type object = map[string]any
	endpoint := monitor.Spec.Endpoints[0]
	keep := func(label, value string) object {
		return object{"source_labels": []string{"__meta_kubernetes_" + label}, "regex": value, "action": "keep"}
	}
	rules := []object{keep("endpointslice_port_name", endpoint.Port)}
	for key, value := range monitor.Spec.Selector.MatchLabels {
		rules = append(rules, keep("service_label_"+labelName(key), value))
	}
	config, err := yaml.Marshal(object{"scrape_configs": []object{{
		"job_name": release, "scheme": endpoint.Scheme, "scrape_interval": endpoint.Interval,
		"scrape_timeout": endpoint.Interval,
		"authorization":  object{"credentials_file": filepath.Join(dir, "token")},
		"tls_config": object{"ca_file": filepath.Join(dir, "ca.crt"),
			"server_name": endpoint.TLSConfig.ServerName},
		"kubernetes_sd_configs": []object{{"role": "endpointslice",
			"kubeconfig_file": filepath.Join(c.Dir(), "admin.kubeconfig"),
			"namespaces":      object{"names": []string{namespace}}}},
		"relabel_configs": rules,
	}}})
	must(t, err)
	return string(config)
}

// labelName is a label's name as Prometheus has it.
func labelName(key string) string {
	name := []byte(key)
	for i, b := range name {
		if !('a' <= b && b <= 'z' || 'A' <= b && b <= 'Z' || '0' <= b && b <= '9') {
			name[i] = '_'
		}
	}
	return string(name)
}

// results is how many series a query has.
func results(ctx context.Context, client *http.Client, server, query string) (int, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, server+"/api/v1/query?query="+url.QueryEscape(query), nil)
	if err != nil {
		return 0, err
	}
	response, err := client.Do(r)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	var answer struct {
		Status string
		Data   struct{ Result []runtime.RawExtension }
	}
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
		return 0, err
	}
	if answer.Status != "success" {
		return 0, fmt.Errorf("the answer is %s %s", response.Status, answer.Status)
	}
	return len(answer.Data.Result), nil
}
