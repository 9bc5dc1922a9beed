package transport

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestLoadConfig(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	write("ca.crt", "") // named relative to the kubeconfig
	const clusters = `{"apiVersion":"v1","kind":"Config","clusters":[{"name":"c","cluster":{"server":"https://up:6443/prefix/","certificate-authority":"ca.crt"}}],
		"users":[{"name":"u","user":{"token":"t"}}],"contexts":[{"name":"x","context":{"cluster":"c","user":"u"}}]`
	source, err := LoadConfig(write("good", clusters+`,"current-context":"x"}`))
	if err != nil {
		t.Fatal(err)
	}
	cfg := source.Config
	if cfg.Host != "https://up:6443/prefix/" || cfg.BearerToken != "t" || cfg.QPS != -1 ||
		cfg.CAFile != filepath.Join(dir, "ca.crt") {
		t.Errorf("%+v", cfg)
	}
	if u, err := BaseURL(cfg); err != nil || u.String() != "https://up:6443/prefix" {
		t.Errorf("base %v, %v", u, err)
	}
	f := func(path string, parts ...string) {
		t.Helper()
		_, err := LoadConfig(path)
		if err == nil {
			t.Errorf("%s: no error", path)
			return
		}
		for _, part := range append(parts, path) {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%s: %q lacks %q", path, err, part)
			}
		}
		if strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %q is more than a line", path, err)
		}
	}
	f(filepath.Join(dir, "missing"), "no such file", "--kubeconfig")
	f(write("malformed", "clusters: [\nx"), "malformed")
	f(write("nocontext", clusters+"}"), "no current context", "use-context")
	f(write("badcontext", clusters+`,"current-context":"y"}`), `"y"`)
	f("", "--kubeconfig", "pod")
	t.Setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
	t.Setenv("KUBERNETES_SERVICE_PORT", "443")
	if _, err := os.Stat("/var/run/secrets/kubernetes.io/serviceaccount/token"); err != nil {
		f("", "automountServiceAccountToken")
	}
}
