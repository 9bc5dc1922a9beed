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
