package config

import (
	"strings"
	"testing"
)

// What a sidecar cannot be is refused before it is tried.
func TestSidecarFlags(t *testing.T) {
	f := func(args, want string) {
		t.Helper()
		got := start(nil, strings.Fields(args)...)
		if (want == "") != (got.options != nil) || want != "" && got.stderr != "spillway: "+want+"\n" {
			t.Errorf("%s: %+v; want %q", args, got, want)
		}
	}
	const sidecar = "--resources=pods --sidecar-dir=/a --listen-tls=127.0.0.1:6443 "
	f(sidecar, "")
	f(sidecar+"--sidecar-key-dir=/b", "")
	f("--sidecar-key-dir=/b", "--sidecar-key-dir=/b: has a meaning only with --sidecar-dir")
	f(sidecar+"--sidecar-key-dir=/a/", "--sidecar-key-dir=/a/: must not be --sidecar-dir, which other containers read")
	const loopback = "--sidecar-dir=/a: needs --listen-tls on loopback, such as --listen-tls=127.0.0.1:6443"
	f("--sidecar-dir=/a", loopback)
	f("--sidecar-dir=/a --listen-tls=:6443", loopback)
	f(sidecar+"--kubeconfig=/dev/null",
		"--sidecar-dir=/a: copies the service account of the pod, which spillway has to use itself: leave --kubeconfig out")
	const meaning = "--sidecar-dir=/a: is for tokens of the pod's own service account, which leaves no meaning to "
	f(sidecar+"--insecure-allow-all", meaning+"--insecure-allow-all")
	f(sidecar+"--api-audiences=x", meaning+"--api-audiences")
	f(sidecar+"--watch-rbac", meaning+"--watch-rbac")
	f(sidecar+"--authorization-local-rbac", meaning+"--authorization-local-rbac")
	f(sidecar+"--authentication-local-jwks=pods --api-audiences=x", meaning+"--api-audiences")
}
