package main

import (
	"strings"
	"testing"

	"spillway/internal/fakeapiserver"
)

func TestCheckRefuses(t *testing.T) {
	token, empty := writeFile(t, "token", "secret"), writeFile(t, "empty", "\n")
	f := func(want string, args ...string) {
		t.Helper()
		got := start(nil, append([]string{"check"}, args...)...)
		if got.code != 1 || got.options != nil || got.stdout != "" || strings.Count(got.stderr, "\n") != 1 ||
			!strings.Contains(got.stderr, want) {
			t.Errorf("check %v: code %d, %q, %q; want a line with %q", args, got.code, got.stdout, got.stderr, want)
		}
	}
	f("--server is required: the URL at which clients reach spillway, such as https://spillway.spillway-system.svc")
	f("--server=a:1: must be http://host[:port] or https://host[:port]", "--server=a:1")
	f("--token-file=/no/such/file: cannot be read: no such file or directory", "--server=https://a",
		"--token-file=/no/such/file")
	f("is empty: name a file with a bearer token", "--server=https://a", "--token-file="+empty)
	f("--server=http://10.0.0.1: a token is not sent over plain HTTP to another machine: use https",
		"--server=http://10.0.0.1", "--token-file="+token)
	f("--resource=*: must name a resource, such as pods", "--server=https://a", "--resource=*")
	f("--resource=Pods: must be in lower case", "--server=https://a", "--resource=Pods")
}

// The command succeeds for a proxy that serves, and fails for one that is gone.
func TestCheck(t *testing.T) {
	up := secureUpstream(t)
	up.Create(fakeapiserver.ConfigMaps, "n", "a")
	p := running(t, up, nil)
	p.ready()
	got := start(nil, "check", "--server="+p.plain, "--resource=configmaps")
	if got.code != 0 || got.stderr != "" ||
		!strings.Contains(got.stdout, "ok      LIST configmaps: from memory, at resourceVersion ") {
		t.Errorf("%+v", got)
	}
	got = start(nil, "check", "--server=http://127.0.0.1:1")
	if got.code != 1 || !strings.HasSuffix(got.stdout, "\nspillway: http://127.0.0.1:1: 2 of 2 checks failed\n") ||
		got.stderr != "" || strings.Count(got.stdout, "FAILED  /livez: no answer: ") != 1 ||
		!strings.HasPrefix(got.stdout, "waits   /livez: 127.0.0.1:1 refuses connections: trying for 10s\n") {
		t.Errorf("%+v", got)
	}
}
