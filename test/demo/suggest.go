package main

import (
	"os/exec"
	"path/filepath"
	"strings"
)

// suggest prints what to try while the proxy is live.
func (s *show) suggest() {
	s.console.title("Your turn")
	environment := "export KUBECONFIG=" + s.proxyKubeconfig()
	if found, err := exec.LookPath("kubectl"); err != nil || found != s.kubectl {
		if path, err := filepath.Abs(s.kubectl); err == nil {
			environment += ` PATH="` + filepath.Dir(path) + `:$PATH"`
		}
	}
	s.console.line("Spillway is live at %s in front of %s, with the rights of %s.", s.server, s.upstream.Host,
		s.upstreamFile)
	s.console.line("Paste into another terminal:\n\n")
	for _, command := range []string{
		environment,
		"kubectl " + strings.Join(quote(watchArgs), " ") + " &",
		"kubectl apply -f " + s.manifest(),
		"kubectl " + strings.Join(quote(patchArgs), " "),
		"kubectl get configmaps --all-namespaces",
		"curl -N '" + s.server + "/api/v1/namespaces/" + namespace + "/configmaps?watch=1'",
		"curl -s " + s.metrics + "/metrics | grep ^spillway_",
		"curl -s '" + s.metrics + "/readyz?verbose'",
		"tail -f " + s.proxyLog(),
	} {
		s.console.line("  %s", command)
	}
	s.console.line("\nCtrl-C ends everything.")
}
