package controlplane

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// versionVariable names the minor version of Kubernetes to start, such as 1.33, where Options name
// none.
const versionVariable = "KUBERNETES"

// binDirVariable names a folder with a build to use instead of bin/controlplane of this repository.
const binDirVariable = "CONTROLPLANE_DIR"

// binDir returns the folder that build.sh filled. The error says how to fill it.
func binDir() (string, error) {
	dir := os.Getenv(binDirVariable)
	if dir == "" {
		root, err := repositoryRoot()
		if err != nil {
			return "", err
		}
		dir = filepath.Join(root, "bin", "controlplane")
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", fmt.Errorf("cannot resolve %s: %w", dir, err)
	}
	for _, name := range []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl"} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.IsDir() {
			return "", fmt.Errorf("%s is not in %s: run `make controlplane`, or point %s at an existing build", name, dir,
				binDirVariable)
		}
	}
	return dir, nil
}

// apiserverOf returns the path of kube-apiserver of a minor, such as 1.33, beside the build in a
// folder. The empty minor is that of the build itself.
func apiserverOf(bin, minor string) (string, error) {
	const name = "kube-apiserver"
	path := filepath.Join(bin, name)
	if minor == "" {
		return path, nil
	}
	version, err := exec.Command(path, "--version").Output() // Kubernetes v1.37.1
	if err != nil {
		return "", fmt.Errorf("cannot tell the version of %s: %w", path, err)
	}
	if strings.HasPrefix(string(version), "Kubernetes v"+minor+".") {
		return path, nil
	}
	dir := bin + "-" + minor
	if os.Getenv(binDirVariable) != "" {
		dir = filepath.Join(bin, minor)
	}
	path = filepath.Join(dir, name)
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("%s of Kubernetes %s is not in %s: run `make controlplane KUBERNETES=%s`", name, minor, dir,
			minor)
	}
	return path, nil
}

// repositoryRoot walks up from the working folder: tests run in their package's, commands anywhere
// inside.
func repositoryRoot() (string, error) {
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
