// Command sync compares what Spillway needs to mirror very many pods with their JSON and with what
// an informer of client-go needs: memory, and CPU until it is synced.
package main

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"time"

	"spillway/bench/rig"
	"spillway/test/framework/controlplane"
)

var (
	pods   = flag.Int("pods", 10000, "pods")
	rounds = flag.Int("rounds", 3, "how often each figure is measured, each time by new processes; the median counts")
)

var (
	memoryLimit = rig.AtMost(1.6, 1.2) // times the bytes of the JSON
	cpuLimit    = rig.AtMost(0.5, 0.25)
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == informerCommand {
		if err := inform(os.Args[2], os.Args[3], os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, "informer:", err)
			os.Exit(1)
		}
		return
	}
	rig.Measure("sync", run)
}

func run(ctx context.Context, scores *rig.Scores) error {
	pair, err := rig.StartPair(ctx, nothing)
	if err != nil {
		return err
	}
	defer pair.Stop()
	if err := pair.CreatePods(ctx, 0, *pods, 200); err != nil {
		return err
	}
	size, err := listSize(ctx, pair)
	if err != nil {
		return err
	}
	s := &show{pair}
	var spillway, informer figures
	for range *rounds {
		if err := s.add(ctx, &spillway, s.spillway); err != nil {
			return err
		}
		if err := s.add(ctx, &informer, s.informer); err != nil {
			return err
		}
	}
	what := fmt.Sprintf("%d pods, %.0f MB of JSON: ", *pods, size/1e6)
	inJSON := func(bytes []float64) []float64 {
		var times []float64
		for _, b := range bytes {
			times = append(times, b/size)
		}
		return times
	}
	scores.Figure(what+"growth of RSS ÷ JSON", "dynamic informer", rig.Times, inJSON(spillway.rss), inJSON(informer.rss),
		memoryLimit)
	scores.Figure(what+"of that in use ÷ JSON", "", rig.Times, inJSON(spillway.held), nil, rig.NoLimit)
	scores.RatioTo(what+"CPU of the initial sync", "dynamic informer", rig.Seconds, spillway.cpu, informer.cpu, cpuLimit)
	scores.RatioTo(what+"time of it", "dynamic informer", rig.Seconds, spillway.took, informer.took, rig.NoLimit)
	return nil
}

// nothing is a resource without objects: what a process needs for it is what it needs for itself.
const nothing = "limitranges"

// show is one run.
type show struct{ *rig.Pair }

// syncCost is what a process needed until it was synced.
type syncCost struct {
	cpu, took time.Duration
	resident  rig.Resident
}

// figures are those of the pods alone, a round each: seconds, and bytes.
type figures struct{ cpu, took, held, rss []float64 }

// add measures one process that takes nothing, and one that takes the pods.
func (s *show) add(ctx context.Context, f *figures, measure func(ctx context.Context, resource string) (
	syncCost, error)) error {
	base, err := measure(ctx, nothing)
	if err != nil {
		return err
	}
	whole, err := measure(ctx, "pods")
	if err != nil {
		return err
	}
	f.cpu = append(f.cpu, (whole.cpu - base.cpu).Seconds())
	f.took = append(f.took, (whole.took - base.took).Seconds())
	f.held = append(f.held, float64(whole.resident.Held-base.resident.Held))
	f.rss = append(f.rss, float64(whole.resident.RSS-base.resident.RSS))
	rig.Say("CPU %s of %s, RSS %d MB of %d MB", whole.cpu-base.cpu, whole.cpu, (whole.resident.RSS-base.resident.RSS)/1e6,
		whole.resident.RSS/1e6)
	return nil
}

// spillway measures a proxy that mirrors a resource.
func (s *show) spillway(ctx context.Context, resource string) (syncCost, error) {
	began := time.Now()
	if err := s.StartProxy(ctx, resource); err != nil { // which returns when it is ready: when all is mirrored
		return syncCost{}, err
	}
	n := syncCost{took: time.Since(began)}
	var err error
	if n.cpu, err = s.Spillway.CPU(); err != nil {
		return n, err
	}
	n.resident, err = s.Proxy.Gauge().Read(ctx)
	return n, err
}

// informer measures a process that runs an informer of client-go on a resource. It is this program,
// started once more.
func (s *show) informer(ctx context.Context, resource string) (syncCost, error) {
	self, err := os.Executable()
	if err != nil {
		return syncCost{}, err
	}
	cmd := exec.Command(self, informerCommand, s.ControlPlane.Kubeconfig(controlplane.Admin), resource)
	cmd.Stderr = os.Stderr
	orders, err := cmd.StdinPipe()
	if err != nil {
		return syncCost{}, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return syncCost{}, err
	}
	began := time.Now()
	if err := rig.Start(cmd); err != nil {
		return syncCost{}, err
	}
	defer func() {
		_ = cmd.Process.Kill() // fails only when it is gone already
		_ = cmd.Wait()         // says that it was killed
	}()
	said := bufio.NewReader(out)
	if _, err := said.ReadString('\n'); err != nil {
		return syncCost{}, fmt.Errorf("the informer was not synced: %w", err)
	}
	n := syncCost{took: time.Since(began)}
	if n.cpu, err = rig.CPUOf(cmd.Process.Pid); err != nil {
		return n, err
	}
	if _, err := fmt.Fprintln(orders, "collect"); err != nil {
		return n, err
	}
	if _, err := said.ReadString('\n'); err != nil {
		return n, fmt.Errorf("the informer did not collect its garbage: %w", err)
	}
	usage, err := rig.UsageOf(cmd.Process.Pid)
	n.resident.RSS = usage.RSS
	return n, err
}

// listSize is the length of all pods as JSON.
func listSize(ctx context.Context, pair *rig.Pair) (float64, error) {
	client := rig.NewTLSClient(pair.APIServer.Token)
	defer client.CloseIdleConnections()
	body, err := rig.GetAll(ctx, client, pair.APIServer.URL+rig.AllPods+"?resourceVersion=0")
	return float64(len(body)), err
}
