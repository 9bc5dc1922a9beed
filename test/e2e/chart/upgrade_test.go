package chart

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"spillway/test/framework/controlplane"
	"spillway/test/framework/process"
)

// upgrade installs or upgrades the release, and returns the notes. Its image has a registry.
func (h *helm) upgrade(t *testing.T, values ...string) (notes string) {
	t.Helper()
	text, err := h.run(t.Context(), append([]string{"upgrade", "--install", release, h.chart, "--namespace=" + namespace,
		"--set=image.registry=registry.test"}, values...)...)
	must(t, err)
	_, notes, _ = strings.Cut(text, "\nNOTES:\n")
	return notes
}

// The autoscaler takes over the replicas that run, however Helm applies the manifest. No upgrade
// scales down what runs. An upgrade leaves alone what the autoscaler has set.
func TestAutoscalerKeepsReplicas(t *testing.T) {
	for how, serverSide := range map[string]string{"server-side": "true", "client-side": "false"} {
		t.Run(how, func(t *testing.T) {
			cp := startControlPlane(t)
			h := newHelm(t)
			h.kubeconfig = cp.Kubeconfig(controlplane.Admin)
			upgrade := func(want int, values ...string) {
				t.Helper()
				h.upgrade(t, append(values, "--server-side="+serverSide)...)
				text, err := cp.Kubectl(t.Context(), "get", "deployments", "--namespace="+namespace, "--output=json")
				must(t, err)
				var list struct {
					Items []struct {
						Spec struct{ Replicas int }
					}
				}
				must(t, json.Unmarshal([]byte(text), &list))
				if len(list.Items) != 1 || list.Items[0].Spec.Replicas != want {
					t.Errorf("after %v: %+v, want %d replicas", values, list.Items, want)
				}
			}
			const autoscaler = "--set=autoscaling.enabled=true,autoscaling.minReplicas=3"
			upgrade(5, "--set=replicaCount=5")
			upgrade(5, autoscaler)
			upgrade(5, autoscaler, "--set=drainSeconds=20")
			_, err := cp.Kubectl(t.Context(), "scale", "deployment/"+release, "--replicas=7", "--namespace="+namespace)
			must(t, err)
			upgrade(7, autoscaler, "--set=drainSeconds=30")
			upgrade(7, autoscaler, "--set=drainSeconds=20")
		})
	}
}

// The notes warn of a group that the API server does not serve, and of no other.
func TestNotesWarnOfUnknownGroups(t *testing.T) {
	cp := startControlPlane(t)
	h := newHelm(t)
	h.kubeconfig = cp.Kubeconfig(controlplane.Admin)
	notes := h.upgrade(t, "--set=mirror.extraResources={deployments.app,widgets.v1.example.com,jobs.batch}")
	const want = "WARNING: The API server does not serve the group app (yet). Until it does, requests for " +
		"deployments.app pass through."
	if !strings.Contains(notes, want) || strings.Count(notes, "WARNING") != 1 {
		t.Errorf("the notes are %s", notes)
	}
	h.kubeconfig = ""
	if notes := h.notes(t, "--set=mirror.extraResources={deployments.app}"); strings.Contains(notes, "group app") {
		t.Errorf("without a cluster: %s", notes)
	}
}

// An installer with the rights that docs/operations.md lists can install, upgrade and uninstall.
// Nothing else is read, so that no template fails for want of a right.
func TestInstallerNeedsOnlyListedRights(t *testing.T) {
	cp := startControlPlane(t)
	h := newHelm(t)
	h.kubeconfig = cp.Kubeconfig(controlplane.Admin)
	document, err := os.ReadFile(filepath.Join(process.Repository(t), "docs", "operations.md"))
	must(t, err)
	_, rights, _ := strings.Cut(string(document), "### Rights of the installer\n")
	_, rights, _ = strings.Cut(rights, "```yaml\n")
	rights, _, _ = strings.Cut(rights, "```")
	_, err = cp.KubectlInput(t.Context(), rights, "create", "-f=-")
	must(t, err)
	const installer = "spillway-installer"
	for _, command := range []string{
		"create rolebinding deployer --role=" + installer + " --user=deployer --namespace=" + namespace,
		"create clusterrolebinding deployer --clusterrole=" + installer + " --user=deployer",
	} {
		_, err := cp.Kubectl(t.Context(), strings.Fields(command)...)
		must(t, err)
	}
	for _, values := range []string{"", "", "rbac.create=false"} {
		h.upgrade(t, "--kube-as-user=deployer", "--set="+values)
	}
	_, err = h.run(t.Context(), "uninstall", release, "--namespace="+namespace, "--kube-as-user=deployer")
	must(t, err)
	// Helm creates the namespace after it has rendered the chart.
	_, err = h.run(t.Context(), "install", release, h.chart, "--namespace=new", "--create-namespace")
	must(t, err)
}
