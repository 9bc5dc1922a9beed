// Package demo runs `make demo` as on a new machine: in a copy of the repository where nothing is
// built, and with no program of the control plane but those that the demo builds.
package demo

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"spillway/test/framework/controlplane"
)

// programs are those that a new machine has when `make demo` has built what it needs. Links to them
// save the test the ten minutes that building them takes.
var programs = []string{"etcd", "kube-apiserver", "kubectl"}

func TestDemoOnANewMachine(t *testing.T) {
	built, err := controlplane.BinDir()
	if err != nil {
		t.Fatal(err)
	}
	bin := t.TempDir()
	for _, name := range programs {
		for _, file := range []string{name, "." + name + ".stamp"} {
			if err := os.Symlink(filepath.Join(built, file), filepath.Join(bin, file)); err != nil {
				t.Fatal(err)
			}
		}
	}

	root := copyRepository(t)
	cmd := exec.CommandContext(t.Context(), "make", "demo")
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "CONTROLPLANE_DIR="+bin, "DEMO_ONCE=1", "KUBERNETES=", "KUBECONFIG=/no/such/file",
		"MAKEFLAGS=", "MAKELEVEL=")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	output, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("make demo: %v\n%s", err, output)
	}
	for _, want := range []string{
		"act one has ended, and nothing is left behind", "200 watches through Spillway", "   nothing is left behind",
	} {
		if !strings.Contains(string(output), want) {
			t.Errorf("make demo does not print %q:\n%s", want, output)
		}
	}
	log, err := os.ReadFile(filepath.Join(root, "bin", "demo-build.log"))
	if err != nil {
		t.Fatal(err)
	}
	if want := bin + " is up to date"; !strings.Contains(string(log), want) {
		t.Errorf("the log of the build beside act one has no %q:\n%s", want, log)
	}
}

// copyRepository returns a folder with the files of the repository that are not built ones.
func copyRepository(t *testing.T) string {
	root, err := controlplane.RepositoryRoot()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	cmd := exec.CommandContext(t.Context(), "bash", "-c", `set -o pipefail
		git ls-files -z --cached --others --exclude-standard |
			tar --create --null --files-from=- --ignore-failed-read | tar --extract --directory="$0"`, dir)
	cmd.Dir = root
	if output, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("cannot copy the repository: %v\n%s", err, output)
	}
	return dir
}
