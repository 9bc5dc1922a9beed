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
	f("--sidecar-key-dir=/b", "--sidecar-key-dir=/b: requires --sidecar-dir")
	f(sidecar+"--sidecar-key-dir=/a/", "--sidecar-key-dir=/a/: must not be --sidecar-dir, which other containers read")
	const loopback = "--sidecar-dir=/a: requires --listen-tls on loopback, such as --listen-tls=127.0.0.1:6443"
	f("--sidecar-dir=/a", loopback)
	f("--sidecar-dir=/a --listen-tls=:6443", loopback)
	for args, excluded := range map[string]string{
		"--kubeconfig=/dev/null": "--kubeconfig", "--insecure-allow-all": "--insecure-allow-all",
		"--api-audiences=x": "--api-audiences", "--watch-rbac": "--watch-rbac",
		"--authorization-local-rbac":                         "--authorization-local-rbac",
		"--authentication-local-jwks=pods --api-audiences=x": "--api-audiences",
		"--client-ca-file=/dev/null":                         "--client-ca-file",
	} {
		f(sidecar+args, "--sidecar-dir=/a: cannot be used with "+excluded+
			", because a sidecar uses the service account of its pod, and serves that account alone")
	}
}
