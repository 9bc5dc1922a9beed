package chart

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"spillway/test/framework/process"
)

// keepsValues are the flags with which an upgrade keeps earlier values, and a file of all values,
// which the reader writes.
var keepsValues = regexp.MustCompile(` --(reuse-values|reset-then-reuse-values|values values\.yaml)`)

// TestCommandsOfTheDocuments renders what each `helm install` and `helm upgrade` of a document
// installs from the repository's chart. An upgrade keeps the values of the release. A shell splits
// the command into words.
func TestCommandsOfTheDocuments(t *testing.T) {
	root := process.Repository(t)
	documents, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	must(t, err)
	command := regexp.MustCompile(`(?m)^(?:\$ )?helm (install|upgrade)( \S+ charts/(?:.*\\\n)*.*)$`)
	found := 0
	for _, path := range append(documents, filepath.Join(root, "README.md")) {
		text, err := os.ReadFile(path)
		must(t, err)
		for _, m := range command.FindAllStringSubmatch(string(text), -1) {
			found++
			if m[1] == "upgrade" && !keepsValues.MatchString(m[2]) {
				t.Errorf("%s: helm upgrade%s resets what it does not set", filepath.Base(path), m[2])
			}
			flags := keepsValues.ReplaceAllString(m[2], "") + " --set=tls.generated.withoutCluster=true"
			cmd := exec.CommandContext(t.Context(), "bash", "-c", `"$0" template`+flags, newHelm(t).program)
			cmd.Dir = root
			output, err := cmd.CombinedOutput()
			if err != nil {
				t.Errorf("%s: helm %s%s: %v\n%s", filepath.Base(path), m[1], m[2], err, output)
			} else if !strings.Contains(string(output), "kind: Service\n") {
				t.Errorf("%s: helm %s%s renders no Service", filepath.Base(path), m[1], m[2])
			}
		}
	}
	if found < 8 {
		t.Errorf("%d commands found, want those of README.md, docs/clients.md and docs/operations.md", found)
	}
}

// TestManifestsOfTheDocuments renders the chart with the values that docs/operations.md gives to
// Argo CD and Flux. Both take the chart from where docs/releasing.md pushes it.
func TestManifestsOfTheDocuments(t *testing.T) {
	const registry = "registry.example.com/charts"
	h := newHelm(t)
	text, err := os.ReadFile(filepath.Join(process.Repository(t), "docs", "operations.md"))
	must(t, err)
	found := map[string]bool{}
	for _, block := range regexp.MustCompile("(?ms)^```yaml\n(.*?)^```$").FindAllStringSubmatch(string(text), -1) {
		for document := range strings.SplitSeq(block[1], "\n---\n") {
			var manifest struct {
				Kind string
				Spec struct {
					URL    string
					Source struct {
						RepoURL, Chart string
						Helm           struct{ ValuesObject map[string]any }
					}
					Values map[string]any
				}
			}
			if yaml.Unmarshal([]byte(document), &manifest) != nil {
				continue // part of the values of the chart
			}
			var values map[string]any
			var more []string
			switch spec := manifest.Spec; manifest.Kind {
			case "Application":
				values = spec.Source.Helm.ValuesObject
				if from := spec.Source.RepoURL + "/" + spec.Source.Chart; from != registry+"/spillway" {
					t.Errorf("the Application takes the chart from %s", from)
				}
			case "OCIRepository":
				if spec.URL != "oci://"+registry+"/spillway" {
					t.Errorf("the OCIRepository is %s", spec.URL)
				}
			case "HelmRelease": // Flux reads the CA from the cluster
				values, more = spec.Values, []string{"--set=tls.generated.withoutCluster=true"}
			}
			if found[manifest.Kind] = true; values == nil {
				continue
			}
			file := filepath.Join(t.TempDir(), "values.yaml")
			given, err := yaml.Marshal(values)
			must(t, err)
			must(t, os.WriteFile(file, given, 0o600))
			if _, err := h.templateOf(t.Context(), h.chart, append(more, "--values="+file)...); err != nil {
				t.Errorf("the values of the %s: %v", manifest.Kind, err)
			}
		}
	}
	for _, kind := range []string{"Application", "OCIRepository", "HelmRelease"} {
		if !found[kind] {
			t.Errorf("docs/operations.md has no %s", kind)
		}
	}
}
