package clientconfig

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/tools/clientcmd"
)

const mine = `apiVersion: v1
kind: Config
current-context: token
clusters: [{name: c, cluster: {server: "https://api:6443", certificate-authority: missing.crt}}]
contexts:
- {name: token, context: {cluster: c, user: token, namespace: team}}
- {name: certificate, context: {cluster: c, user: certificate}}
- {name: gone, context: {cluster: c, user: gone}}
- {name: nobody, context: {cluster: c, user: missing}}
users:
- {name: token, user: {tokenFile: token, as: somebody}}
- {name: certificate, user: {client-certificate: a.crt, client-key: a.key}}
- {name: gone, user: {client-certificate: none.crt, client-key: none.key}}
`

func files(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"config": mine, "a.crt": "certificate", "a.key": "key", "token": "secret", "empty": "", "bad": "a: [",
		"ca.crt": "-----BEGIN CERTIFICATE-----\nMA==\n-----END CERTIFICATE-----\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestMake(t *testing.T) {
	dir := files(t)
	at := func(name string) string { return filepath.Join(dir, name) }
	text, warning, err := Make(Options{Server: "https://spillway.ns.svc", CAFile: at("ca.crt"), From: at("config")})
	if err != nil || warning != "" {
		t.Fatal(err, warning)
	}
	config, err := clientcmd.Load(text)
	if err != nil {
		t.Fatal(err)
	}
	user, context, cluster := config.AuthInfos["spillway"], config.Contexts["spillway"], config.Clusters["spillway"]
	if config.CurrentContext != "spillway" || cluster.Server != "https://spillway.ns.svc" ||
		!strings.Contains(string(cluster.CertificateAuthorityData), "MA==") ||
		context.Namespace != "team" || user.TokenFile != at("token") || user.Impersonate != "somebody" ||
		len(config.AuthInfos) != 1 {
		t.Errorf("%s", text)
	}
	if text, warning, err = Make(Options{Server: "https://spillway.ns.svc", From: at("config"), Context: "certificate",
		Namespace: "other"}); err != nil || !strings.Contains(warning, "--client-ca-file") ||
		!strings.Contains(warning, "kubectl --token") {
		t.Fatal(err, warning)
	}
	if config, err = clientcmd.Load(text); err != nil || string(config.AuthInfos["spillway"].ClientKeyData) != "key" ||
		config.Contexts["spillway"].Namespace != "other" {
		t.Errorf("%v: %s", err, text)
	}
	if text, _, err = Make(Options{Server: "https://spillway.ns.svc", TokenFile: "/run/token"}); err != nil {
		t.Fatal(err)
	}
	if config, err = clientcmd.Load(text); err != nil || config.AuthInfos["spillway"].TokenFile != "/run/token" ||
		config.Contexts["spillway"].AuthInfo != "spillway" {
		t.Errorf("%v: %s", err, text)
	}
	if text, _, err = Make(Options{Server: "http://localhost:8001"}); err != nil {
		t.Fatal(err)
	}
	if config, err = clientcmd.Load(text); err != nil || len(config.AuthInfos) != 0 ||
		config.Contexts["spillway"].AuthInfo != "" {
		t.Errorf("%v: %s", err, text)
	}
}

// Whatever could not work, or would send a token in the clear, is refused in a line.
func TestMakeRefuses(t *testing.T) {
	dir := files(t)
	at := func(name string) string { return filepath.Join(dir, name) }
	const secure = "https://spillway.ns.svc"
	f := func(o Options, want string) {
		t.Helper()
		text, _, err := Make(o)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%+v: %v, want %q; %s", o, err, want, text)
		}
	}
	f(Options{Server: "spillway:443"}, "--server=spillway:443: must be https://host:port")
	f(Options{Server: "unix:///run/spillway.sock"}, "clients know no unix sockets")
	f(Options{Server: "http://spillway.ns.svc"},
		"--server=http://spillway.ns.svc: spillway serves plain HTTP on loopback only")
	f(Options{Server: "http://localhost:1", CAFile: at("ca.crt")}, "requires https:// in --server")
	f(Options{Server: secure, CAFile: at("none")}, "none: cannot be read: no such file or directory")
	f(Options{Server: secure, CAFile: at("a.key")}, "a.key: holds no certificate in PEM")
	f(Options{Server: secure, From: at("config"), TokenFile: "/a"},
		"--token-file=/a: cannot be used with --kubeconfig")
	f(Options{Server: "http://localhost:1", TokenFile: "/a"},
		"--token-file=/a: clients send no credentials over plain HTTP")
	f(Options{Server: secure, TokenFile: "a"}, "--token-file=a: must be a full path")
	f(Options{Server: secure, Context: "x"}, "--context=x: requires --kubeconfig")
	f(Options{Server: secure, From: at("none")}, "none: cannot be read: no such file or directory")
	f(Options{Server: secure, From: at("bad")}, "bad: cannot be read: ")
	f(Options{Server: secure, From: at("empty")}, `empty: has no context ""`)
	f(Options{Server: secure, From: at("config"), Context: "other"},
		`has no context "other": name one with --context; it has `)
	f(Options{Server: secure, From: at("config"), Context: "nobody"},
		`the user "missing" of its context "nobody" is missing`)
	f(Options{Server: secure, From: at("config"), Context: "gone"}, `of the user of its context "gone", `)
	f(Options{Server: "http://127.0.0.1:8001", From: at("config"), Context: "token"},
		"clients send no credentials over plain HTTP")
}
