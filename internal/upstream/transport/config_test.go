package transport

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestLoadConfig(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	dir := t.TempDir()
	t.Setenv("KUBECONFIG", filepath.Join(dir, "none"))
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
	source, err := LoadConfig(write("good", clusters+`,"current-context":"x"}`), "")
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
		_, err := LoadConfig(path, "")
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
	f(write("nocontext", clusters+"}"), "no current context", "use-context", "it has x")
	f(write("badcontext", clusters+`,"current-context":"y"}`), `its current context "y" does not exist`, "it has x")
	f("", "no cluster to talk to: KUBECONFIG=", "--kubeconfig", "pod")
	t.Setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
	t.Setenv("KUBERNETES_SERVICE_PORT", "443")
	if _, err := os.Stat("/var/run/secrets/kubernetes.io/serviceaccount/token"); err != nil {
		f("", "automountServiceAccountToken")
	}
}

// Outside pods, the files that kubectl reads lead to the API server: those of KUBECONFIG, merged,
// of which some may be missing.
func TestLoadConfigReadsTheFilesThatKubectlReads(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	dir := t.TempDir()
	clusters, users := filepath.Join(dir, "clusters"), filepath.Join(dir, "users")
	writeTo := func(path, text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	writeTo(clusters, `{"current-context":"x","contexts":[{"name":"x","context":{"cluster":"c","user":"u"}},
		{"name":"y","context":{"cluster":"d","user":"u"}}],
		"clusters":[{"name":"c","cluster":{"server":"https://c"}},{"name":"d","cluster":{"server":"https://d"}}]}`)
	writeTo(users, `{"current-context":"y","users":[{"name":"u","user":{"token":"t"}}]}`)
	t.Setenv("KUBECONFIG", strings.Join([]string{filepath.Join(dir, "missing"), clusters, users},
		string(os.PathListSeparator)))
	load := func(path, context string) ConfigSource {
		t.Helper()
		source, err := LoadConfig(path, context)
		if err != nil {
			t.Fatal(err)
		}
		return source
	}
	source := load("", "")
	if source.Config.Host != "https://c" || source.Config.BearerToken != "t" || source.Context != "x" ||
		source.ClusterFile != clusters || source.UserFile != users || !slices.Equal(source.Files, []string{clusters, users}) {
		t.Errorf("%+v with %+v", source, source.Config)
	}
	if want := `user "u" in kubeconfig ` + users; source.Credentials() != want {
		t.Errorf("%s, want %s", source.Credentials(), want)
	}
	if other := load("", "y"); other.Config.Host != "https://d" || other.Context != "y" {
		t.Errorf("another context: %+v", other)
	}
	t.Run("an explicit file takes precedence", func(t *testing.T) {
		if alone := load(clusters, ""); alone.Config.BearerToken != "" || len(alone.Files) != 1 {
			t.Errorf("%+v", alone.Config)
		}
	})
	t.Run("a context that does not exist is refused with the names of the others", func(t *testing.T) {
		want := "--context=z: kubeconfig " + clusters + ", " + users + " has no such context; it has x, y"
		if _, err := LoadConfig("", "z"); err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	})
	t.Run("a reload follows each file, in the context of the start", func(t *testing.T) {
		writeTo(users, `{"current-context":"y","users":[{"name":"u","user":{"token":"new"}}]}`)
		writeTo(clusters, strings.Replace(mustRead(t, clusters), `"current-context":"x"`, `"current-context":"y"`, 1))
		cfg, err := source.Reload()
		if err != nil || cfg.Host != "https://c" || cfg.BearerToken != "new" {
			t.Errorf("%+v, %v", cfg, err)
		}
	})
	t.Run("a reload fails while a file is gone", func(t *testing.T) {
		if err := os.Remove(users); err != nil {
			t.Fatal(err)
		}
		if cfg, err := source.Reload(); err == nil {
			t.Errorf("without the file of users: %+v", cfg)
		}
	})
}

// Without any of these files and outside pods, there is no cluster to talk to. In a pod, KUBECONFIG
// is not read.
func TestLoadConfigWithoutAKubeconfig(t *testing.T) {
	good := filepath.Join(t.TempDir(), "good")
	text := `{"current-context":"x","contexts":[{"name":"x","context":{"cluster":"c"}}],
		"clusters":[{"name":"c","cluster":{"server":"https://c"}}]}`
	if err := os.WriteFile(good, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("KUBECONFIG", good)
	t.Setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
	t.Setenv("KUBERNETES_SERVICE_PORT", "443")
	if source, err := LoadConfig("", ""); err == nil && source.Config.Host == "https://c" {
		t.Error("KUBECONFIG is read in a pod")
	}
	if source, err := LoadConfig(good, ""); err != nil || source.Config.Host != "https://c" ||
		source.Credentials() != `context "x" in kubeconfig `+good+`, which names no user` {
		t.Errorf("%+v, %v", source, err)
	}
}

func mustRead(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
