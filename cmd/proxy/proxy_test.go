package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"go.uber.org/zap"

	"spillway/internal/config"
	"spillway/internal/listen"
	"spillway/internal/logging"
	"spillway/internal/testutil"
)

var update = flag.Bool("update", false, "rewrite testdata from what the code does now")

func TestMain(m *testing.M) { testutil.VerifyServers(m) }

// result is what one command line led to.
type result struct {
	code           int
	stdout, stderr string
	options        *config.Settings // nil if it did not start
}

// start runs args with environ, in a pod, as far as the wiring. Unless args say otherwise, pods are
// mirrored.
func start(environ []string, args ...string) result {
	return startBare(append([]string{"SPILLWAY_RESOURCES=pods"}, environ...), args...)
}

// startBare is start without resources.
func startBare(environ []string, args ...string) result {
	var stdout, stderr bytes.Buffer
	var started *config.Settings
	wire := func(_ context.Context, o *config.Settings, _ *zap.Logger, _ *logging.Output) error {
		started = o
		return nil
	}
	environ = append([]string{"KUBERNETES_SERVICE_HOST=10.0.0.1", "PATH=/bin"}, environ...)
	code := execute(args, environ, &stdout, &stderr, wire)
	return result{code, stdout.String(), stderr.String(), started}
}

func TestHelpIsReadable(t *testing.T) {
	got := start(nil, "--help")
	if got.code != 0 || got.stderr != "" || got.options != nil {
		t.Fatalf("--help: code %d, stderr %q, started %v", got.code, got.stderr, got.options != nil)
	}
	checkHelp(t, got.stdout, "help.txt", 116)
	flags := strings.Count(got.stdout, "\n      --") + strings.Count(got.stdout, "\n  -h, --")
	if flags < 20 || flags > 30 {
		t.Errorf("it describes %d flags", flags)
	}
	for _, example := range []string{"--listen-identity self", "--listen-tls :6443 --tls-cert-file", "spillway inject",
		"--memory-budget 2Gi"} {
		if !strings.Contains(got.stdout, example) {
			t.Errorf("no example has %s", example)
		}
	}
	for _, same := range [][]string{{"-h"}, {"help"}, {"--help", "--log-level=debug"}} {
		if again := start(nil, same...); again.code != 0 || again.stdout != got.stdout {
			t.Errorf("%q: %+v", same, again)
		}
	}
}

func TestHelpOfAllFlagsIsReadable(t *testing.T) {
	got := start(nil, "--help=all")
	if got.code != 0 || got.stderr != "" || got.options != nil {
		t.Fatalf("--help=all: code %d, stderr %q, started %v", got.code, got.stderr, got.options != nil)
	}
	checkHelp(t, got.stdout, "help-all.txt", 116)
	for _, g := range config.New().FlagGroups() {
		g.Flags.VisitAll(func(f *pflag.Flag) {
			if !strings.Contains(got.stdout, "--"+f.Name) {
				t.Errorf("--%s is not described", f.Name)
			}
		})
	}
}

// checkHelp holds a help text to a golden file, and its lines to a width that can be read.
func checkHelp(t *testing.T, help, golden string, width int) {
	t.Helper()
	golden = filepath.Join("testdata", golden)
	if *update {
		if err := os.WriteFile(golden, []byte(help), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if help != string(want) {
		t.Errorf("the help differs from %s; if it is meant to, run go test ./cmd/proxy -update. Got:\n%s", golden, help)
	}
	for i, line := range strings.Split(help, "\n") {
		if len(line) > width {
			t.Errorf("%s: line %d has %d columns: %s", golden, i+1, len(line), line)
		}
	}
}

func TestVersion(t *testing.T) {
	got := start(nil, "--version")
	if got.code != 0 || !strings.HasPrefix(got.stdout, "spillway ") || strings.Count(got.stdout, "\n") != 1 ||
		got.options != nil {
		t.Errorf("--version: %+v", got)
	}
	if command := start(nil, "version"); command.code != 0 || command.stdout != got.stdout {
		t.Errorf("version: %+v", command)
	}
	var document map[string]string
	command := start(nil, "version", "-o", "json")
	if err := json.Unmarshal([]byte(command.stdout), &document); err != nil || document["version"] == "" ||
		!strings.HasPrefix(document["goVersion"], "go") || !strings.Contains(document["platform"], "/") {
		t.Errorf("version -o json: %v, %+v", err, command)
	}
	expectLine(t, start(nil, "version", "-o", "xml"), "--output=xml: must be text or json")
}

func TestCompletionPrintsAScriptForEachShell(t *testing.T) {
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		got := start(nil, "completion", shell)
		if got.code != 0 || got.stderr != "" || !strings.Contains(got.stdout, "spillway") {
			t.Errorf("%s: %d, %q, %d bytes", shell, got.code, got.stderr, len(got.stdout))
		}
	}
	const want = "spillway completion takes one argument: bash, zsh, fish, powershell"
	expectLine(t, start(nil, "completion"), want)
	expectLine(t, start(nil, "completion", "csh"), want)
	for typed, offered := range map[string]string{"ver": "version", "completion f": "fish", "--log-level ": "warn",
		"check --res": "--resource"} {
		got := start(nil, append([]string{"__complete"}, strings.Split(typed, " ")...)...)
		if got.code != 0 || !strings.Contains(got.stdout, offered) {
			t.Errorf("%q: %+v", typed, got)
		}
	}
}

// What is wrong with the command line, and with settings, is one line.
func TestRefusals(t *testing.T) {
	expectLine(t, start(nil, "pods"),
		`unexpected argument "pods": spillway takes flags or a command; spillway --help lists them`)
	expectLine(t, start(nil, "pods", "--help"),
		`unexpected argument "pods": spillway takes flags or a command; spillway --help lists them`)
	expectLine(t, start(nil, "help", "pods"),
		`unexpected argument "pods": spillway takes flags or a command; spillway --help lists them`)
	expectLine(t, start(nil, "--memory-limit=1Gi"), "--memory-limit: no such flag; did you mean --memory-budget?")
	expectLine(t, start(nil, "--help=some"), "--help=some: must be all, or be left out")
	expectLine(t, start(nil, "--help", "all"), `unexpected argument "all": did you mean spillway --help=all?`)
	expectLine(t, start(nil, "-v"),
		"-v: no such flag; spillway version prints the version, and --log-level=debug logs more")
	expectLine(t, start(nil, "tp"), `unexpected argument "tp": did you mean spillway top?`)
	expectLine(t, start(nil, "injekt"), `unexpected argument "injekt": did you mean spillway inject?`)
	expectLine(t, start(nil, "--resorces=pods"), "--resorces: no such flag; did you mean --resources?")
	expectLine(t, start([]string{"SPILLWAY_LISTN=x"}), "SPILLWAY_LISTN: no such setting; did you mean SPILLWAY_LISTEN?")
	expectLine(t, start(nil, "--stall-timeout=0s"), "--stall-timeout=0s: must be at least 1ms")
}

func expectLine(t *testing.T, got result, want string) {
	t.Helper()
	if got.options != nil {
		t.Error("started all the same")
	}
	if got.code != 1 || got.stdout != "" || got.stderr != "spillway: "+want+"\n" {
		t.Errorf("exit code %d, stdout %q, stderr\n%swant 1 and\nspillway: %s\n", got.code, got.stdout, got.stderr, want)
	}
}

func TestErrorOfTheWiringIsOneLine(t *testing.T) {
	var stdout, stderr bytes.Buffer
	wire := func(context.Context, *config.Settings, *zap.Logger, *logging.Output) error {
		return errors.New("the API server is gone:\n\tconnection refused\r\n")
	}
	// These flags come with a warning, which would be a second line.
	code := execute([]string{"--resources=pods"}, []string{"KUBERNETES_SERVICE_HOST=x"}, &stdout, &stderr, wire)
	want := "spillway: the API server is gone: connection refused\n"
	if code != 1 || stderr.String() != want || stdout.Len() != 0 {
		t.Errorf("code %d, stdout %q, stderr %q; want 1, nothing, %q", code, stdout.String(), stderr.String(), want)
	}
}

// selfSigned is a new certificate of this machine.
func selfSigned(t *testing.T) tls.Certificate {
	t.Helper()
	config, _, err := listen.TLS{}.Config()
	if err != nil {
		t.Fatal(err)
	}
	return config.Certificates[0]
}

// pairFiles writes a new key pair and returns its leaf.
func pairFiles(t *testing.T, certFile, keyFile string) []byte {
	t.Helper()
	pair := selfSigned(t)
	key, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	for name, block := range map[string]*pem.Block{
		certFile: {Type: "CERTIFICATE", Bytes: pair.Certificate[0]}, keyFile: {Type: "PRIVATE KEY", Bytes: key},
	} {
		if err := os.WriteFile(name, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return pair.Certificate[0]
}
