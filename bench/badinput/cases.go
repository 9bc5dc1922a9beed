package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"

	"k8s.io/client-go/rest"

	"spillway/test/framework/controlplane"
)

// makeCases prepares what the cases need: files, a port that is taken, an API server that is not
// there and one that says nothing.
func makeCases(ctx context.Context, cp *controlplane.ControlPlane) ([]badCase, func(), error) {
	dir, err := os.MkdirTemp("", "spillway-badinput-")
	if err != nil {
		return nil, nil, err
	}
	taken, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0") // and it never answers
	if err != nil {
		return nil, nil, err
	}
	cleanUp := func() {
		taken.Close()
		os.RemoveAll(dir)
	}
	f := files{dir: dir, taken: taken.Addr().String(), good: "--kubeconfig=" + cp.Kubeconfig(controlplane.Admin)}
	if err := f.write(cp); err != nil {
		cleanUp()
		return nil, nil, err
	}
	cases := append(f.upstreamCases(), f.settingCases()...)
	cases = append(cases, f.listenerCases()...)
	for i := range cases {
		cases[i].args = append(cases[i].args, "--metrics-listen=")
	}
	return cases, cleanUp, nil
}

// files is where the bad inputs are.
type files struct{ dir, taken, good string }

func (f files) path(name string) string { return filepath.Join(f.dir, name) }

func (f files) write(cp *controlplane.ControlPlane) error {
	const header = "apiVersion: config.spillway.example.com/v1alpha1\nkind: SpillwayConfiguration\n"
	text := map[string]string{
		"garbage.kubeconfig": "this: is: not a kubeconfig\n",
		"empty.kubeconfig":   "apiVersion: v1\nkind: Config\n",
		"bare.yaml":          "resources: [pods]\n",
		"key.yaml":           header + "resorces: [pods]\n",
		"flag.yaml":          header + "history-bytes: 8Mi\n",
		"broken.yaml":        header + "resources: [pods\n",
		"type.yaml":          header + "stallTimeout: often\n",
		"cert.pem":           "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
	}
	for name, content := range text {
		if err := os.WriteFile(f.path(name), []byte(content), 0o600); err != nil {
			return err
		}
	}
	stranger := *cp.Config(controlplane.Admin)
	stranger.BearerToken = "nobody"
	untrusted := *cp.Config(controlplane.Admin)
	untrusted.CAData, untrusted.CAFile = nil, ""
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	gone := closed.Addr().String()
	closed.Close()
	for name, config := range map[string]*rest.Config{
		"gone.kubeconfig":      {Host: "https://" + gone},
		"silent.kubeconfig":    {Host: "https://" + f.taken},
		"nowhere.kubeconfig":   {Host: "https://apiserver.invalid:6443"},
		"stranger.kubeconfig":  &stranger,
		"untrusted.kubeconfig": &untrusted,
	} {
		if err := controlplane.WriteKubeconfig(f.path(name), config); err != nil {
			return err
		}
	}
	return nil
}

// upstreamCases are about the API server and how to get there.
func (f files) upstreamCases() []badCase {
	with := func(name string) []string {
		return []string{"--kubeconfig=" + f.path(name), "--resources=pods", "--listen=127.0.0.1:0"}
	}
	return []badCase{
		{name: "no kubeconfig, no pod", args: []string{"--resources=pods"}, says: []string{"--kubeconfig"}},
		{name: "kubeconfig is not there", args: with("none"), says: []string{"--kubeconfig", "none"}},
		{name: "kubeconfig is a folder", args: with(""), says: []string{"--kubeconfig"}},
		{name: "kubeconfig is garbage", args: with("garbage.kubeconfig"), says: []string{"garbage.kubeconfig"}},
		{name: "kubeconfig is empty", args: with("empty.kubeconfig"), says: []string{"empty.kubeconfig"}},
		{name: "API server is gone", args: with("gone.kubeconfig"),
			says: []string{"is unreachable", "refused", "retryAfter"}, waits: true},
		{name: "API server says nothing", args: with("silent.kubeconfig"),
			says: []string{"is unreachable", f.taken, "retryAfter"}, waits: true},
		{name: "API server has no address", args: with("nowhere.kubeconfig"),
			says: []string{"is unreachable", "apiserver.invalid", "retryAfter"}, waits: true},
		{name: "API server does not know us", args: with("stranger.kubeconfig"), says: []string{"401"}},
		{name: "API server is not trusted", args: with("untrusted.kubeconfig"), says: []string{"certificate"}},
	}
}

// settingCases are about flags, the environment and the configuration file.
func (f files) settingCases() []badCase {
	with := func(args ...string) []string { return append([]string{f.good, "--listen=127.0.0.1:0"}, args...) }
	return []badCase{
		{name: "unknown resource", args: with("--resources=gizmos"), says: []string{"--resources=gizmos"}},
		{name: "resources are not named", args: with(), says: []string{"--resources"}},
		{name: "unknown resource among known",
			args: with("--resources=pods,gizmos.example.com,services", "--strict-resources"),
			says: []string{"--resources=", "gizmos.example.com"}},
		{name: "resource of another version", args: with("--resources=deployments.v7.apps", "--strict-resources"),
			says: []string{"deployments.v7.apps"}},
		{name: "resource is no name", args: with("--resources=po/ds"), says: []string{"--resources=po/ds"}},
		{name: "unknown flag", args: with("--resorces=pods"), says: []string{"--resources"}},
		{name: "flag of another type", args: with("--stall-timeout=5"), says: []string{"--stall-timeout=5"}},
		{name: "an argument", args: with("pods"), says: []string{`"pods"`}},
		{name: "unknown variable", args: with(), env: []string{"SPILLWAY_RESORCES=pods"},
			says: []string{"SPILLWAY_RESORCES"}},
		{name: "bad YAML key", args: with("--config=" + f.path("key.yaml")), says: []string{"key.yaml:3", "resources"}},
		{name: "the name of a flag in YAML", args: with("--config=" + f.path("flag.yaml")),
			says: []string{"flag.yaml:3", "historyBytes"}},
		{name: "YAML without a version", args: with("--config=" + f.path("bare.yaml")),
			says: []string{"bare.yaml:1", "apiVersion"}},
		{name: "bad YAML", args: with("--config=" + f.path("broken.yaml")), says: []string{"broken.yaml"}},
		{name: "bad YAML value", args: with("--config=" + f.path("type.yaml")),
			says: []string{"type.yaml:3", "stallTimeout"}},
		{name: "configuration is not there", args: with("--config=" + f.path("none.yaml")), says: []string{"none.yaml"}},
	}
}

// listenerCases are about what the proxy listens on.
func (f files) listenerCases() []badCase {
	with := func(args ...string) []string { return append([]string{f.good, "--resources=pods"}, args...) }
	cert := "--tls-cert-file=" + f.path("cert.pem")
	return []badCase{
		{name: "port in use", args: with("--listen=" + f.taken), says: []string{"in use", f.taken}},
		{name: "plain HTTP for all the world", args: with("--listen=0.0.0.0:8001"),
			says: []string{"--listen=0.0.0.0:8001", "--listen-tls"}},
		{name: "no port", args: with("--listen=127.0.0.1"), says: []string{"host:port"}},
		{name: "no listener", args: with("--listen="), says: []string{"--listen"}},
		{name: "TLS for all the world", args: with("--listen=", "--listen-tls=:0", "--insecure-allow-all"),
			says: []string{"--insecure-allow-all"}},
		{name: "certificate without key", args: with("--listen=", "--listen-tls=:0", "--insecure-allow-all", cert),
			says: []string{"--tls-private-key-file"}},
		{name: "certificate is garbage", args: with("--listen=", "--listen-tls=127.0.0.1:0", "--insecure-allow-all", cert,
			fmt.Sprintf("--tls-private-key-file=%s", f.path("cert.pem"))), says: []string{"cert.pem"}},
	}
}
