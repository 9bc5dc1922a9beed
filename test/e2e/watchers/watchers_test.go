package watchers

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"testing"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/rest"

	"spillway/test/framework/controlplane"
	"spillway/test/framework/process"
	"spillway/test/framework/relay"
)

var (
	runs     = flag.Int("runs", 4, "how often to run the specs through Spillway")
	parallel = flag.Int("at-a-time", 4, "how many runs to make at a time")
	busy     = flag.Int("busy", 2, "how many goroutines keep the machine busy meanwhile")
	late     relay.Answers
)

func init() {
	flag.Var(&late, "late", "how late the API server answers Spillway's own questions: a time, random or never")
}

// TestWatchersSpecs runs the specs once directly, which shows that this control plane is one to run
// them at, and then through Spillway.
func TestWatchersSpecs(t *testing.T) {
	program := filepath.Join(process.Repository(t), "bin", "watchers")
	if _, err := os.Stat(program); err != nil {
		t.Skip("run make watchers, which builds the specs")
	}
	cp, err := controlplane.Start(t.Context(), controlplane.Options{Log: t.Output()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cp.Stop)
	config := cp.Config(controlplane.Admin)
	proxies := filepath.Join(t.TempDir(), "proxies.kubeconfig")
	if err := controlplane.WriteKubeconfig(proxies, late.Before(t, config)); err != nil {
		t.Fatal(err)
	}
	proxy := process.StartProxy(t, process.BuildProxy(t), "--kubeconfig="+proxies, "--resources=configmaps", "--listen=",
		"--listen-tls=127.0.0.1:0", "--insecure-allow-all")
	through := filepath.Join(t.TempDir(), "through.kubeconfig")
	if err := controlplane.WriteKubeconfig(through, &rest.Config{Host: proxy.TLS, BearerToken: config.BearerToken,
		TLSClientConfig: rest.TLSClientConfig{Insecure: true}}); err != nil {
		t.Fatal(err)
	}
	if out, err := specs(t.Context(), program, cp.Kubeconfig(controlplane.Admin)); err != nil {
		t.Fatalf("directly: %v\n%s", err, out)
	}
	process.KeepBusy(t, *busy)
	watchesBefore := process.Metric(t, proxy.Metrics, "spillway_watch_terminations_total")
	var failed atomic.Int64
	group := new(errgroup.Group)
	group.SetLimit(*parallel)
	for run := range *runs {
		group.Go(func() error {
			if out, err := specs(t.Context(), program, through); err != nil {
				failed.Add(1)
				return fmt.Errorf("run %d: %w\n%s", run, err, out)
			}
			return nil
		})
	}
	err = group.Wait()
	t.Logf("%d of %d runs failed", failed.Load(), *runs)
	if err != nil {
		t.Error(err)
	}
	if process.Metric(t, proxy.Metrics, "spillway_watch_terminations_total") == watchesBefore {
		t.Error("no watch was served from memory: this tests nothing")
	}
}

// specs runs the specs once.
func specs(ctx context.Context, program, kubeconfig string) ([]byte, error) {
	return exec.CommandContext(ctx, program, "-kubeconfig="+kubeconfig).CombinedOutput()
}
