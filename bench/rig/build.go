package rig

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
)

// binaryVariable names a proxy binary to use instead of a new build.
const binaryVariable = "BENCH_PROXY"

// Binary builds the proxy, once, and returns its path.
var Binary = sync.OnceValues(func() (string, error) {
	if path := os.Getenv(binaryVariable); path != "" {
		return filepath.Abs(path)
	}
	root, err := repositoryRoot()
	if err != nil {
		return "", err
	}
	path := filepath.Join(root, "bin", "spillway")
	cmd := exec.CommandContext(context.Background(), "go", "build", "-o", path, "./cmd/proxy")
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building the proxy: %w\n%s", err, out)
	}
	return path, nil
})

// repositoryRoot walks up from the working folder to the one that holds cmd/proxy.
func repositoryRoot() (string, error) {
	start, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for dir := start; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "cmd", "proxy", "main.go")); err == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("%s is not inside the repository: name a proxy binary in %s", start, binaryVariable)
		}
	}
}

// Environ is the environment for a proxy: ours, without the settings that a proxy would take from
// it, or refuse.
func Environ() []string {
	return slices.DeleteFunc(os.Environ(), func(variable string) bool { return strings.HasPrefix(variable, "SPILLWAY_") })
}
