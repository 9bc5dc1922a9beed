package main

import (
	"os/exec"
	"path/filepath"
	"strings"

	"spillway/test/demo/stage"
)

// suggest prints what to try while the proxy is live.
func (s *show) suggest() {
	s.console.Title("Your turn")
	environment := "export KUBECONFIG=" + s.proxyKubeconfig()
	if found, err := exec.LookPath("kubectl"); err != nil || found != s.kubectl {
		if path, err := filepath.Abs(s.kubectl); err == nil {
			environment += ` PATH="` + filepath.Dir(path) + `:$PATH"`
		}
	}
	s.console.Line("Spillway is live at %s in front of %s, with the rights of %s.", s.proxy.Server, s.upstream.Host,
		s.upstreamFile)
	s.console.Line("Paste into another terminal:\n\n")
	for _, command := range []string{
		environment,
		"kubectl " + strings.Join(stage.Quote(watchArgs), " ") + " &",
		"kubectl apply -f " + s.manifest(),
		"kubectl " + strings.Join(stage.Quote(patchArgs), " "),
		"kubectl get configmaps --all-namespaces",
		"curl -N '" + s.proxy.Server + "/api/v1/namespaces/" + namespace + "/configmaps?watch=1'",
		"curl -s " + s.proxy.Metrics + "/metrics | grep ^spillway_",
		"curl -s '" + s.proxy.Metrics + "/readyz?verbose'",
		"tail -f " + s.proxy.Log,
	} {
		s.console.Line("  %s", command)
	}
	s.console.Line("\nCtrl-C ends everything.")
}
