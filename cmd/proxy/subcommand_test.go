package main

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"

	"spillway/internal/config"
	"spillway/internal/logging"
	"spillway/internal/sidecar/inject"
	"spillway/internal/sidecar/webhook"
	"spillway/internal/status"
)

func TestHelpOfCommandsIsReadable(t *testing.T) {
	for _, cmd := range newCommand(nil, logging.NewOutput(os.Stderr), nil).Commands() {
		got, all := start(nil, cmd.Name(), "--help"), start(nil, cmd.Name(), "--help=all")
		if all.stdout != got.stdout || all.code != 0 {
			t.Errorf("%s --help=all: %+v", cmd.Name(), all)
		}
		if got.code != 0 || got.stderr != "" || got.options != nil {
			t.Fatalf("%s --help: code %d, stderr %q", cmd.Name(), got.code, got.stderr)
		}
		checkHelp(t, got.stdout, "help-"+cmd.Name()+".txt", 130)
	}
}

// given runs a command with an input.
func given(t *testing.T, input string, args ...string) result {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd := newCommand([]string{"PATH=/bin"}, logging.NewOutput(&stderr), nil)
	cmd.SetArgs(args)
	cmd.SetIn(strings.NewReader(input))
	cmd.SetOut(&stdout)
	cmd.SetErr(&stderr)
	err := cmd.ExecuteContext(t.Context())
	if err != nil {
		return result{1, stdout.String(), stderr.String() + "spillway: " + status.OneLine(err.Error()) + "\n", nil}
	}
	return result{0, stdout.String(), stderr.String(), nil}
}

const podManifest = "apiVersion: v1\nkind: Pod\nmetadata:\n  name: app\nspec:\n  containers:\n  - name: app\n    " +
	"image: app\n"

// What is injected goes to standard output, what was done to standard error, and uninject gives
// back what there was.
func TestInject(t *testing.T) {
	file := writeFile(t, "pod.yaml", podManifest+"--- # nothing\n")
	for _, args := range [][]string{{"inject", "--image=spillway:1", "-f", file},
		{"inject", "--image=spillway:1", "--filename=-", "--flags=--history-bytes=8Mi,--disable-http2-serving"}} {
		got := given(t, podManifest+"--- # nothing\n", args...)
		if got.code != 0 || got.stderr != "pod/app injected\n" || !strings.Contains(got.stdout, "image: spillway:1") {
			t.Fatalf("%v: %+v", args, got)
		}
		if back := given(t, got.stdout, "uninject"); back.code != 0 || back.stderr != "pod/app uninjected\n" ||
			back.stdout != podManifest+"--- # nothing\n" {
			t.Errorf("uninject: %+v", back)
		}
		if again := given(t, got.stdout, "inject", "--image=other"); again.code != 0 ||
			again.stderr != "pod/app left as it is: it is injected already\n" || again.stdout != got.stdout {
			t.Errorf("again: %+v", again)
		}
	}
}

// A document without pods is named on standard error, and so is a file without any.
func TestInjectSaysWhatItSkips(t *testing.T) {
	const service = "apiVersion: v1\nkind: Service\nmetadata: {name: web}\n"
	for _, tt := range []struct{ name, input, stderr string }{
		{"a document beside a pod", podManifest + "---\n" + service,
			"pod/app injected\nservice/web skipped: its kind is not known to have pods\n"},
		{"JSON", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c"}}`,
			"--filename=-: has no pods, and nothing that makes pods: nothing was injected\n" +
				"configmap/c skipped: its kind is not known to have pods\n"},
		{"no object", "foo: bar\n", "--filename=-: has no pods, and nothing that makes pods: nothing was injected\n" +
			"a document without kind skipped: it is no object of Kubernetes\n"},
		{"nothing", "# nothing\n", "--filename=-: has no pods, and nothing that makes pods: nothing was injected\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := given(t, tt.input, "inject", "--image=spillway:1")
			if got.code != 0 || got.stderr != tt.stderr || !strings.Contains(tt.input, "Pod") && got.stdout != tt.input {
				t.Errorf("%d, %q, %q; want %q", got.code, got.stdout, got.stderr, tt.stderr)
			}
		})
	}
}

// Several files make one stream of documents. If one file is wrong, there is no output.
func TestInjectReadsSeveralFiles(t *testing.T) {
	first := writeFile(t, "first.yaml", strings.TrimSuffix(podManifest, "\n"))
	second := writeFile(t, "second.json", `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"second"},`+
		`"spec":{"containers":[{"name":"app","image":"app"}]}}`)
	got := given(t, "", "inject", "--image=x", "-f", first, "-f", second)
	if got.code != 0 || got.stderr != "pod/app injected\npod/second injected\n" {
		t.Fatalf("%+v", got)
	}
	var names []string
	for documents := yaml.NewYAMLOrJSONDecoder(strings.NewReader(got.stdout), 4096); ; {
		var o unstructured.Unstructured
		if err := documents.Decode(&o); err != nil {
			if !errors.Is(err, io.EOF) {
				t.Error(err)
			}
			break
		}
		names = append(names, o.GetName())
	}
	if !slices.Equal(names, []string{"app", "second"}) {
		t.Errorf("%q\n%s", names, got.stdout)
	}
	wrong := writeFile(t, "wrong.yaml", "a: [")
	if got := given(t, "", "inject", "--image=x", "-f", first, "-f", wrong); got.code != 1 || got.stdout != "" ||
		!strings.HasPrefix(got.stderr, "spillway: --filename="+wrong+": ") || strings.Count(got.stderr, "\n") != 1 {
		t.Errorf("%+v", got)
	}
	expectLine(t, given(t, "", "inject", "--image=x", "-f-", "-f-"), "--filename=-: standard input can be read only once")
}

// What is wrong is one line on standard error and nothing on standard output.
func TestCommandsRefuse(t *testing.T) {
	dir := t.TempDir()
	taken := writeFile(t, "taken", "")
	f := func(args, want string) {
		t.Helper()
		got := given(t, podManifest, strings.Fields(strings.ReplaceAll(args, "DIR", dir))...)
		if want = "spillway: " + strings.ReplaceAll(want, "DIR", dir) + "\n"; got.code != 1 || got.stdout != "" ||
			got.stderr != want {
			t.Errorf("%s: %d, %q, %q; want %q", args, got.code, got.stdout, got.stderr, want)
		}
	}
	f("inject", "--image=: must be an image that your nodes can pull, such as registry.example.com/spillway:v1")
	f("inject pod.yaml",
		`unexpected argument "pod.yaml": spillway inject takes flags only; spillway inject --help lists them`)
	f("inject --help=some", "--help=some: must be left out")
	f("inject --filenam=x", "--filenam: no such flag; did you mean --filename?")
	f("inject --zzz", "--zzz: no such flag; spillway inject --help lists them")
	f("inject --image=x --filename=DIR/none", "--filename=DIR/none: cannot be read: no such file or directory")
	f("inject --image=x --image-pull-policy=Sometimes",
		"--image-pull-policy=Sometimes: must be Always, IfNotPresent or Never")
	f("inject --image=x --port=70000", "--port=70000: must be a port, from 1 to 65535")
	f("inject --image=x --port=http", "--port=http: must be a whole number")
	f("inject --image=x --health-port=26443",
		"--health-port=26443: must be a port, from 1 to 65535, that the sidecar does not use already")
	f("inject --image=x --cpu-request=-1", "--cpu-request=-1: must be a quantity above 0, such as 100m or 128Mi")
	f("inject --image=x --cpu-limit=some", "--cpu-limit=some: must be a quantity above 0, such as 100m or 128Mi")
	f("inject --image=x --cpu-limit=49m", "--cpu-limit=49m: must not be below what is requested, which is 50m")
	f("inject --image=x --resources=", "--resources=: must be a comma-separated list of resources, or *")
	f("inject --image=x --resources=Pods!", "the sidecar's flags: --resources=Pods!: "+
		config.CheckResource("Pods!").Error())
	f("inject --image=x --flags=--log-level=loud",
		"the sidecar's flags: --log-level=loud: must be debug, info, warn or error")
	f("inject --image=x --flags=--listen=:1",
		"the sidecar's flags: --listen cannot be set for sidecars: injection sets it")
	for _, file := range []string{
		"tls-cert-file", "tls-private-key-file", "client-ca-file", "requestheader-client-ca-file", "impersonation-kubeconfig",
		"audit-policy-file", "audit-log-path", "tracing-config-file", "config",
	} {
		f("inject --image=x --flags=--"+file+"=/dev/zero", "the sidecar's flags: --"+file+
			" cannot be set for sidecars: they have only the files that injection gives them")
	}
	f("inject --image=x --flags=--resources=pods",
		"the sidecar's flags: --resources cannot be set here: it has a flag and an annotation of its own")
	f("inject --image=x --flags=debug", `the sidecar's flags: unexpected argument "debug": give flags, as --name=value`)
	f("inject --image=x --flags=--insecure-allow-all",
		"the sidecar's flags: --sidecar-dir=/: cannot be used with --insecure-allow-all, because a sidecar uses the "+
			"service account of its pod, and serves that account alone")
	f("inject --image=x --flags=--help", "the sidecar's flags: --help cannot be set for sidecars")
	f("uninject --filename=DIR/none", "--filename=DIR/none: cannot be read: no such file or directory")
	f("kubeconfig --server=http://example.com",
		"--server=http://example.com: spillway serves plain HTTP on loopback only: use https://")
	f("kubeconfig --output="+taken, "--output="+taken+": exists already: remove it, or name another file")
	f("kubeconfig --output=DIR/a/b", "--output=DIR/a/b: cannot be written: no such file or directory")
	f("webhook --image=x", "--tls-cert-file is required, because the API server sends reviews over TLS only")
	f("webhook --image=x --listen=8443", "--listen=8443: must be host:port; did you mean :8443?")
	f("webhook --image=x --shutdown-timeout=-1s --tls-cert-file=a --tls-private-key-file=b",
		"--shutdown-timeout=-1s: must not be negative")
	f("webhook --image=x --tls-cert-file=a --tls-private-key-file=b --kubeconfig=c --namespace-limits=ignore",
		"--kubeconfig=c: cannot be used with --namespace-limits=ignore, which reads nothing of the cluster")
	f("webhook --image=x --place=middle",
		"--place=middle: must be auto, first, last or after:NAME, the name of an init container")
	f("webhook --image=x --tls-cert-file=DIR/a --tls-private-key-file=DIR/b",
		"--tls-cert-file=DIR/a: cannot be read: no such file or directory")
	f("webhook --image=x --tls-cert-file=a --tls-private-key-file=b --client-allowed-names=a,b",
		"--client-allowed-names=a,b: requires --client-ca-file, by which names are verified")
}

// A kubeconfig holds credentials: it is its user's alone.
func TestKubeconfigFile(t *testing.T) {
	name := filepath.Join(t.TempDir(), "kubeconfig")
	if got := given(t, "", "kubeconfig", "--output="+name); got.code != 0 || got.stdout+got.stderr != "" {
		t.Fatalf("%+v", got)
	}
	info, err := os.Stat(name)
	if err != nil || info.Mode() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	text, err := os.ReadFile(name)
	if err != nil || given(t, "", "kubeconfig").stdout != string(text) {
		t.Errorf("%v: %s", err, text)
	}
}

// The webhook serves its health, presents a new certificate once there is one, and on a signal
// finishes the reviews under way.
func TestWebhook(t *testing.T) {
	dir := t.TempDir()
	w := &webhookCommand{shutdownTimeout: patience, Webhook: webhook.Webhook{
		Sidecar: inject.Defaults(), Listen: "127.0.0.1:0", Limits: webhook.LimitsIgnore,
	}}
	w.CertFile, w.KeyFile = filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	first := pairFiles(t, w.CertFile, w.KeyFile)
	core, logs := observer.New(zap.InfoLevel)
	done := make(chan error, 1)
	go func() { done <- w.run(t.Context(), zap.New(core)) }()
	var address string
	eventually(t, "its address", func() bool {
		for _, entry := range logs.FilterMessage("serving admission reviews").All() {
			address = entry.ContextMap()["address"].(string)
		}
		return address != ""
	})
	shown := func(path string) (int, []byte) {
		//nolint:gosec // a certificate that was just made up
		transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
		defer transport.CloseIdleConnections()
		response, err := (&http.Client{Transport: transport, Timeout: patience}).Get("https://" + address + path)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		return response.StatusCode, response.TLS.PeerCertificates[0].Raw
	}
	for _, path := range []string{"/livez", "/readyz"} {
		if code, leaf := shown(path); code != http.StatusOK || !bytes.Equal(leaf, first) {
			t.Errorf("%s: %d", path, code)
		}
	}
	if code, _ := shown("/inject"); code != http.StatusMethodNotAllowed {
		t.Errorf("GET of reviews: %d", code)
	}
	second := pairFiles(t, w.CertFile, w.KeyFile)
	eventually(t, "the new certificate", func() bool {
		_, leaf := shown("/livez")
		return bytes.Equal(leaf, second)
	})
	answered := underWay(t, "https://"+address+"/inject", func() {
		if err := syscall.Kill(os.Getpid(), syscall.SIGTERM); err != nil {
			t.Error(err)
		}
		eventually(t, "the end of its listener", func() bool {
			conn, err := net.Dial("tcp", address)
			if err == nil {
				conn.Close()
			}
			return err != nil
		})
	})
	if answered != http.StatusBadRequest { // what was sent is no review, and that was said
		t.Errorf("a review under way: %d", answered)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// underWay is what is answered to a POST whose body ends only after meanwhile has been done, which
// the server has begun to read before.
func underWay(t *testing.T, url string, meanwhile func()) int {
	t.Helper()
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
		ExpectContinueTimeout: patience} //nolint:gosec // a certificate that was just made up
	defer transport.CloseIdleConnections()
	read, write := io.Pipe()
	trace := &httptrace.ClientTrace{Got100Continue: func() {
		go func() {
			_, _ = write.Write([]byte("{"))
			meanwhile()
			_, _ = write.Write([]byte("}"))
			_ = write.Close()
		}()
	}}
	r, err := http.NewRequestWithContext(httptrace.WithClientTrace(t.Context(), trace), http.MethodPost, url, read)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Expect", "100-continue")
	response, err := (&http.Client{Transport: transport, Timeout: patience}).Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	return response.StatusCode
}
