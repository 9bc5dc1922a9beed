package controlplane

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

// versionVariable names the minor version of Kubernetes to start, such as 1.33, where Options name
// none.
const versionVariable = "KUBERNETES"

// gatesVariable sets feature gates where Options set none: A=false,B=true.
const gatesVariable = "KUBERNETES_FEATURE_GATES"

// binDirVariable names a folder with a build to use instead of bin/controlplane of this repository.
const binDirVariable = "CONTROLPLANE_DIR"

// BinDir returns the folder that build.sh filled with at least what Start starts: etcd and
// kube-apiserver. The error says how to fill it, as that of starting any other program does.
func BinDir() (string, error) {
	dir := os.Getenv(binDirVariable)
	if dir == "" {
		root, err := RepositoryRoot()
		if err != nil {
			return "", err
		}
		dir = filepath.Join(root, "bin", "controlplane")
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", fmt.Errorf("cannot resolve %s: %w", dir, err)
	}
	for _, name := range []string{"etcd", "kube-apiserver"} {
		if err := present(filepath.Join(dir, name)); err != nil {
			return "", err
		}
	}
	return dir, nil
}

// present returns an error that says how to build the program with this path if it is not there.
func present(path string) error {
	if info, err := os.Stat(path); err != nil || info.IsDir() {
		return fmt.Errorf("%s is not in %s: run `make controlplane`, or point %s at an existing build",
			filepath.Base(path), filepath.Dir(path), binDirVariable)
	}
	return nil
}

// apiserverOf returns the path of kube-apiserver of a minor, such as 1.33, beside the build in a
// folder. The empty minor is that of the build itself.
func apiserverOf(bin, minor string) (string, error) {
	const name = "kube-apiserver"
	dir, err := folderOf(bin, minor)
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, name)
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("%s of Kubernetes %s is not in %s: run `make controlplane KUBERNETES=%s`", name, minor, dir,
			minor)
	}
	return path, nil
}

// folderOf returns the folder of the programs of a minor.
func folderOf(bin, minor string) (string, error) {
	if minor == "" {
		return bin, nil
	}
	newest, err := minorOf(filepath.Join(bin, "kube-apiserver"))
	switch {
	case err != nil:
		return "", err
	case minor == fmt.Sprintf("1.%d", newest):
		return bin, nil
	case os.Getenv(binDirVariable) != "":
		return filepath.Join(bin, minor), nil
	}
	return bin + "-" + minor, nil
}

// VersionDir returns the minor that the environment's KUBERNETES names, and the folder of its
// programs of Kubernetes, which may lack some. Both are those of BinDir, with an empty minor, if it
// is the newest or none.
func VersionDir() (minor, dir string, err error) {
	bin, err := BinDir()
	if err != nil {
		return "", "", err
	}
	minor = os.Getenv(versionVariable)
	dir, err = folderOf(bin, minor)
	if dir == bin {
		minor = ""
	}
	return minor, dir, err
}

// Built reports that kube-apiserver of a minor, such as 1.33, has been built.
func Built(minor string) bool {
	bin, err := BinDir()
	if err != nil {
		return false
	}
	_, err = apiserverOf(bin, minor)
	return err == nil
}

// parseGates reads the value of gatesVariable.
func parseGates(text string) (map[string]bool, error) {
	gates := map[string]bool{}
	for part := range strings.SplitSeq(text, ",") {
		name, value, _ := strings.Cut(part, "=")
		on, err := strconv.ParseBool(value)
		if err != nil {
			return nil, fmt.Errorf("%s=%q: want Gate=true or Gate=false, separated by commas", gatesVariable, text)
		}
		gates[name] = on
	}
	return gates, nil
}

// minorOf returns the minor of a program of Kubernetes: 37 of 1.37.1.
func minorOf(path string) (int, error) {
	output, err := exec.Command(path, "--version").Output() // Kubernetes v1.37.1
	if err != nil {
		return 0, fmt.Errorf("cannot tell the version of %s: %w", path, err)
	}
	var minor, patch int
	if _, err := fmt.Sscanf(string(output), "Kubernetes v1.%d.%d", &minor, &patch); err != nil {
		return 0, fmt.Errorf("cannot read the version of %s: %q", path, output)
	}
	return minor, nil
}

// RepositoryRoot walks up from the working folder: tests run in their package's, commands anywhere
// inside.
func RepositoryRoot() (string, error) {
	start, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("cannot tell the working folder: %w", err)
	}
	for dir := start; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "test", "framework", "controlplane", "build.sh")); err == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("%s is not inside the repository, so where `make controlplane` built to is unknown: set %s",
				start, binDirVariable)
		}
	}
}
