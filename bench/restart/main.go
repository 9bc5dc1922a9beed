// Command restart compares what a restart of kube-apiserver, which loses its history, costs it
// afterwards: with informers that watch it directly, and with the same informers behind Spillway.
package main

import (
	"context"
	"flag"
	"fmt"
	"time"

	"github.com/prometheus/procfs"
	"golang.org/x/sync/errgroup"

	"spillway/bench/rig"
	"spillway/test/framework/controlplane"
)

var (
	crowdSize = flag.Int("informers", 500, "informers that watch all pods")
	pods      = flag.Int("pods", 50, "pods that each of them holds")
	rate      = flag.Float64("rate", 20, "pods that change per second")
	window    = flag.Duration("window", time.Minute, "how long kube-apiserver is measured after it is ready again")
)

var cpuLimit = rig.AtMost(0.05, 0.02)

func main() { rig.Measure("restart", run) }

func run(ctx context.Context, scores *rig.Scores) error {
	cp, err := rig.StartControlPlane(ctx)
	if err != nil {
		return err
	}
	pair := &rig.Pair{ControlPlane: cp, APIServer: rig.Server{
		Name: "kube-apiserver", URL: cp.URL(), Token: cp.Config(controlplane.Admin).BearerToken, Pid: cp.APIServer().Pid(),
	}}
	defer pair.Stop()
	if err := pair.CreatePods(ctx, 0, *pods, 50); err != nil {
		return err
	}
	s := &show{Pair: pair}
	nobody, err := s.play(ctx, "nobody", nil)
	if err != nil {
		return err
	}
	direct, err := s.play(ctx, "direct", s.direct)
	if err != nil {
		return err
	}
	proxied, err := s.play(ctx, "through Spillway", s.proxied)
	if err != nil {
		return err
	}
	what := fmt.Sprintf("%d informers of %d pods: ", *crowdSize, *pods)
	list := func(f float64) []float64 { return []float64{f} }
	above := func(c cost) []float64 { return list(max(0, (c.cpu - nobody.cpu).Seconds())) }
	scores.Figure(what+"relists", "", rig.Count, list(float64(proxied.relists)), list(float64(direct.relists)),
		rig.NoLimit)
	if proxied.relists > 0 {
		scores.Miss(what+"relists through Spillway", "there must be none")
	}
	scores.Figure(what+"informers that do not end with what kube-apiserver has", "", rig.Count,
		list(float64(proxied.behind)), list(float64(direct.behind)), rig.NoLimit)
	if proxied.behind > 0 {
		scores.Miss(what+"informers behind Spillway that do not", "there must be none")
	}
	scores.Ratio(what+"CPU of kube-apiserver, above that without informers", rig.Seconds, above(proxied), above(direct),
		cpuLimit)
	scores.Figure(what+"all of it", "", rig.Seconds, list(proxied.cpu.Seconds()), list(direct.cpu.Seconds()), rig.NoLimit)
	scores.Note(what+"without informers", "%.2f s", nobody.cpu.Seconds())
	scores.Ratio(what+"bytes that kube-apiserver sends to its clients", rig.Megabytes, list(float64(proxied.bytes)/1e6),
		list(float64(direct.bytes)/1e6), rig.NoLimit)
	scores.Ratio(what+"until all are up to date", rig.Seconds, list(proxied.took.Seconds()), list(direct.took.Seconds()),
		rig.NoLimit)
	return nil
}

// show is one run.
type show struct{ *rig.Pair }

// cost is what a restart cost.
type cost struct {
	cpu     time.Duration // of kube-apiserver, from its start to the end of the window
	bytes   int64         // that it sent to the clients that are measured
	relists int64
	behind  int           // informers that do not get to hold what kube-apiserver has
	took    time.Duration // from when it is ready until all informers have what was written then
}

// play restarts kube-apiserver under informers that open starts, and measures what that costs it.
// With open nil, there are no watches.
func (s *show) play(ctx context.Context, who string, open func(ctx context.Context) (*informerGroup, error)) (c cost,
	err error) {
	defer s.StopProxy()
	crowd := &informerGroup{}
	if open != nil {
		if crowd, err = open(ctx); err != nil {
			return cost{}, err
		}
	}
	defer crowd.close()
	// A watch that is over within a second and has shown nothing is an error to client-go: each sees
	// something first.
	if _, err := s.write(ctx, crowd, 3*time.Second); err != nil {
		return cost{}, err
	}
	relists := crowd.states.Load()
	sent, err := s.sent(crowd)
	if err != nil {
		return cost{}, err
	}
	if err := s.ControlPlane.RestartAPIServer(ctx); err != nil {
		return cost{}, err
	}
	s.APIServer.Pid = s.ControlPlane.APIServer().Pid()
	if c.took, err = s.write(ctx, crowd, *window); err != nil {
		return c, err
	}
	c.relists = crowd.states.Load() - relists
	if c.bytes, err = s.sent(crowd); err != nil {
		return c, err
	}
	c.bytes -= sent
	if c.cpu, err = s.APIServer.CPU(); err != nil {
		return c, err
	}
	rig.Say("%s: %s of CPU, %.1f MB, %d relists, all up to date after %s", who, c.cpu, float64(c.bytes)/1e6, c.relists,
		c.took)
	c.behind, err = crowd.behind(ctx, s.Config())
	return c, err
}

// write changes pods for a while, and returns when every client has received the first change and
// the while is over: how long the former took. Requests that an API server drops just after its
// start do not matter.
func (s *show) write(ctx context.Context, crowd *informerGroup, while time.Duration) (took time.Duration, err error) {
	var paths []string
	for i := range *pods {
		paths = append(paths, rig.PodPath(i))
	}
	writer := s.NewWriter(paths)
	began := time.Now()
	var first uint64
	if !rig.Eventually(ctx, time.Minute, 100*time.Millisecond, func() bool {
		first, err = writer.WriteSpread(ctx, 1)
		return err == nil
	}) {
		return 0, err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		for ctx.Err() == nil && time.Since(began) < while {
			if _, err := writer.Run(ctx, *rate, 1, while-time.Since(began)); err != nil {
				rig.Say("a write failed: %v", err)
			}
		}
		return nil
	})
	group.Go(func() error {
		if !rig.Eventually(ctx, 5*time.Minute, 20*time.Millisecond, func() bool { return crowd.has(first) }) {
			return fmt.Errorf("informers do not have what was written at %d", first)
		}
		took = time.Since(began)
		return nil
	})
	return took, group.Wait()
}

// direct has informers watch kube-apiserver itself.
func (s *show) direct(ctx context.Context) (*informerGroup, error) {
	return newCrowd(ctx, s.Config(), *crowdSize)
}

// proxied has them watch a proxy whose upstream it is.
func (s *show) proxied(ctx context.Context) (*informerGroup, error) {
	if err := s.StartProxy(ctx, "pods"); err != nil {
		return nil, err
	}
	return newCrowd(ctx, s.Proxy.Config(), *crowdSize)
}

// sent is how many bytes kube-apiserver has sent to the clients that are measured: what the
// informers have read, or the proxy, which reads next to nothing else.
func (s *show) sent(crowd *informerGroup) (int64, error) {
	if s.Proxy == nil {
		return crowd.read.Load(), nil
	}
	proc, err := procfs.NewProc(s.Proxy.Pid())
	if err != nil {
		return 0, err
	}
	io, err := proc.IO()
	return int64(io.RChar), err
}
