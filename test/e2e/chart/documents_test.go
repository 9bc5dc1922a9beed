package chart

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"spillway/test/framework/process"
)

// TestCommandsOfTheDocuments renders what each `helm install` of a document would install. A shell
// splits the command into words.
func TestCommandsOfTheDocuments(t *testing.T) {
	root := process.Repository(t)
	documents, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	must(t, err)
	command := regexp.MustCompile(`(?m)^helm (?:install|upgrade)((?:.*\\\n)*.*)$`)
	found := 0
	for _, path := range append(documents, filepath.Join(root, "README.md")) {
		text, err := os.ReadFile(path)
		must(t, err)
		for _, m := range command.FindAllStringSubmatch(string(text), -1) {
			found++
			flags := strings.ReplaceAll(m[1], " --reuse-values", "") + " --set=tls.generated.withoutCluster=true"
			cmd := exec.CommandContext(t.Context(), "bash", "-c", `"$0" template`+flags, newHelm(t).program)
			cmd.Dir = root
			output, err := cmd.CombinedOutput()
			if err != nil {
				t.Errorf("%s: helm install%s: %v\n%s", filepath.Base(path), m[1], err, output)
			} else if !strings.Contains(string(output), "kind: Service\n") {
				t.Errorf("%s: helm install%s renders no Service", filepath.Base(path), m[1])
			}
		}
	}
	if found < 3 {
		t.Errorf("%d commands found, want those of README.md and docs/clients.md", found)
	}
}
