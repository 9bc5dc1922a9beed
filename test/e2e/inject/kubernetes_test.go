package inject

import (
	"bytes"
	"encoding/json"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"spillway/test/framework/process"
)

// makesPods finds manifests of something that makes pods.
var makesPods = regexp.MustCompile(
	`(?m)^kind: "?(Deployment|StatefulSet|DaemonSet|ReplicationController|Job|CronJob|Pod)"?$`)

// kubernetesOwn are manifests that were not written for these tests: those of Kubernetes' own
// module, of the version that is built here, by their names in it. They are its addons, CSI
// drivers, and what its end-to-end tests deploy.
func kubernetesOwn(t *testing.T) map[string]string {
	t.Helper()
	download := exec.CommandContext(t.Context(), "go", "mod", "download", "-json", "k8s.io/kubernetes")
	download.Dir = filepath.Join(process.Repository(t), "test", "framework", "controlplane", "binaries")
	out, err := download.Output()
	must(t, err)
	var module struct{ Dir string }
	must(t, json.Unmarshal(out, &module))
	all := map[string]string{}
	for _, dir := range []string{"cluster/addons", "test/e2e/testing-manifests"} {
		must(t, filepath.WalkDir(filepath.Join(module.Dir, dir), func(path string, entry fs.DirEntry, err error) error {
			if err != nil || filepath.Ext(path) != ".yaml" {
				return err
			}
			text, err := os.ReadFile(path)
			if makesPods.Match(text) {
				name, _ := filepath.Rel(module.Dir, path)
				all[name] = string(text)
			}
			return err
		}))
	}
	return all
}

// takesKubernetesOwn: what kube-apiserver takes of them it takes injected, and uninjected they say
// what they said. Those that are not injected are reported as templates, or as pods
// in their node's network.
func (c *cluster) takesKubernetesOwn(t *testing.T) {
	apply := func(text string) error {
		_, err := c.KubectlInput(t.Context(), text, "apply", "--server-side", "--dry-run=server", "--validate=strict", "-f=-")
		return err
	}
	var taken, refused int
	for name, text := range kubernetesOwn(t) {
		inject := exec.CommandContext(t.Context(), c.spillway, "inject", "--image=spillway:1")
		inject.Stdin = strings.NewReader(text)
		var why bytes.Buffer
		inject.Stderr = &why
		injected, err := inject.Output()
		if err != nil {
			refused++
			if !strings.Contains(why.String(), "hostNetwork") && !strings.Contains(why.String(), "not valid YAML") {
				t.Errorf("%s: %s", name, &why)
			}
			continue
		}
		if !bytes.Contains(injected, []byte("spillway.example.com/injected")) {
			t.Errorf("%s: nothing is injected", name)
		}
		sameObjects(t, name, c.run(t, string(injected), "uninject"), text)
		if err := apply(text); err != nil {
			t.Logf("%s as it is: %v", name, err)
			continue
		}
		taken++
		if err := apply(string(injected)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	t.Logf("%d are taken, injected too; %d are refused with a reason", taken, refused)
	if taken < 20 || refused == 0 {
		t.Error("so few cannot be all")
	}
}
