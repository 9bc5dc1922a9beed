package process

import (
	"os"
	"path/filepath"
	"testing"
)

// oldKubectl is the older of the two minors of kubectl that are run.
const oldKubectl = "1.31"

// Kubectls are the programs that are built, by their version.
func Kubectls(t *testing.T) map[string]string {
	t.Helper()
	built := filepath.Join(Repository(t), "bin", "controlplane")
	programs := map[string]string{"newest": filepath.Join(built, "kubectl")}
	old := filepath.Join(built+"-"+oldKubectl, "kubectl")
	if _, err := os.Stat(old); err == nil {
		programs[oldKubectl] = old
	} else {
		t.Logf("SKIPPED kubectl %s: run `make controlplane KUBERNETES=%s PROGRAMS=kubectl`", oldKubectl, oldKubectl)
	}
	return programs
}
