package main

import (
	"strings"
	"testing"

	"spillway/internal/fakeapiserver"
)

// Flags that cannot work are refused in one line that says what would; nothing is started.
func TestTopRefuses(t *testing.T) {
	ca := writeFile(t, "ca.crt", "no certificate")
	token := writeFile(t, "token", "secret")
	f := func(want string, args ...string) {
		t.Helper()
		got := start([]string{"SPILLWAY_NO_SUCH_SETTING=1"}, append([]string{"top"}, args...)...)
		if got.code != 1 || got.options != nil || got.stdout != "" || strings.Count(got.stderr, "\n") != 1 ||
			!strings.Contains(got.stderr, want) {
			t.Errorf("top %v: code %d, %q, %q; want a line with %q", args, got.code, got.stdout, got.stderr, want)
		}
	}
	f("--address=127.0.0.1:9464: must be http://host[:port] or https://host[:port]", "--address=127.0.0.1:9464", "--once")
	f("--interval=10ms: must be at least 1s", "--interval=10ms")
	f("--interval=soon: must be a number with a unit", "--interval=soon")
	f(`--sort="height": must be one of user, lag,`, "--sort=height", "--once")
	f("--token-file=/no/such/file: cannot be read: no such file or directory", "--token-file=/no/such/file", "--once")
	f("a token is not sent over plain HTTP to another machine", "--token-file="+token, "--address=http://10.0.0.1:9464",
		"--once")
	f("--ca-file=/no/such/file: cannot be read", "--ca-file=/no/such/file", "--once")
	f("holds no PEM certificate", "--ca-file="+ca, "--address=https://10.0.0.1:9464", "--once")
	f("--intervall: no such flag; did you mean --interval?", "--intervall=2s")
	f("--kubeconfig: no such flag; spillway top --help lists them", "--kubeconfig=x")
	f(`unexpected argument "pods": spillway top takes flags only`, "pods")
	f("no answer from http://127.0.0.1:1", "--address=http://127.0.0.1:1") // what is no terminal gets one report
	f("no answer from http://127.0.0.1:1", "--once", "--address=http://127.0.0.1:1")
}

func TestTopHelp(t *testing.T) {
	got := start(nil, "top", "--help")
	if got.code != 0 || got.stderr != "" || got.options != nil {
		t.Fatalf("code %d, %q", got.code, got.stderr)
	}
	for _, want := range []string{"spillway top [flags]", "--address URL", "--token-file file", "--ca-file file",
		"--interval duration", "--sort column", "--once"} {
		if !strings.Contains(got.stdout, want) {
			t.Errorf("lacks %q:\n%s", want, got.stdout)
		}
	}
	for i, line := range strings.Split(got.stdout, "\n") {
		if len(line) > 116 {
			t.Errorf("line %d has %d columns: %s", i+1, len(line), line)
		}
	}
}

// The proxy itself still starts without a command.
func TestTopIsNoFlag(t *testing.T) {
	if got := start(nil, "--resources", "top"); got.options == nil || got.options.Resources[0] != "top" {
		t.Errorf("--resources top: %+v", got)
	}
}

func TestTopOnce(t *testing.T) {
	up := secureUpstream(t)
	up.Create(fakeapiserver.ConfigMaps, "n", "a")
	p := running(t, up, nil)
	p.ready()
	p.watching(p.plain, "")
	var got result
	eventually(t, "the watch to be shown", func() bool {
		got = start(nil, "top", "--once", "--address="+p.metrics, "--sort=-id")
		return strings.Contains(got.stdout, "One watch.")
	})
	for _, want := range []string{"Upstream     answers, https://", "configmaps  synced", "Watches      1, ", "HTTP/1.1"} {
		if !strings.Contains(got.stdout, want) {
			t.Errorf("lacks %q:\n%s", want, got.stdout)
		}
	}
	if got.code != 0 || got.stderr != "" {
		t.Errorf("code %d, %q", got.code, got.stderr)
	}
}
