// Command controllers lets kube-controller-manager and kube-scheduler work with the proxy as their
// only API server: a Deployment is created, scheduled, scaled, rolled out, deleted and
// garbage-collected through it, again and again.
package main

import (
	"context"
	"flag"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"spillway/bench/rig"
	"spillway/test/framework/controlplane"
)

var (
	duration    = flag.Duration("duration", 5*time.Minute, "how long to go on")
	direct      = flag.Bool("direct", false, "leave the proxy out, for comparison")
	contentType = flag.String("content-type", protobuf, "of the controllers' requests; this is their own default")
)

const (
	nodeName = "hand-made"
	protobuf = "application/vnd.kubernetes.protobuf"
)

func main() { rig.Main("controllers", run) }

func run(ctx context.Context, r *rig.Report) error {
	cp, err := rig.StartControlPlane(ctx)
	if err != nil {
		return err
	}
	defer cp.Stop()
	s := &show{cp: cp, report: r, config: cp.Config(controlplane.Admin)}
	if s.direct, err = kubernetes.NewForConfig(s.config); err != nil {
		return err
	}
	if !*direct {
		if s.proxy, err = rig.StartProxy(ctx, cp.Kubeconfig(controlplane.Admin), "--resources=*"); err != nil {
			return err
		}
		defer s.proxy.Kill()
		s.config = &rest.Config{Host: s.proxy.URL, QPS: -1} // and no credentials
	}
	if s.through, err = kubernetes.NewForConfig(s.config); err != nil {
		return err
	}
	if err := s.startControllers(ctx); err != nil {
		return err
	}
	err = s.play(ctx)
	s.checkLogs()
	if s.proxy != nil {
		s.checkProxy(ctx)
	}
	return err
}

// show is one run.
type show struct {
	cp              *controlplane.ControlPlane
	proxy           *rig.Proxy   // nil if it is left out
	config          *rest.Config // all that controllers and clients know
	report          *rig.Report
	through, direct kubernetes.Interface // the proxy's clients, and the API server's for comparison
	controllers     []*controlplane.Process
	stages          []*stage
}

// startControllers starts the two with a kubeconfig that knows of nothing but the proxy, unless
// that is left out.
func (s *show) startControllers(ctx context.Context) error {
	if _, err := s.cp.MakeNode(ctx, nodeName); err != nil {
		return err
	}
	kubeconfig := filepath.Join(s.cp.Dir(), "controllers.kubeconfig")
	if err := controlplane.WriteKubeconfig(kubeconfig, s.config); err != nil {
		return err
	}
	manager, err := s.cp.StartControllerManager(ctx, kubeconfig, "--kube-api-content-type="+*contentType)
	if err != nil {
		return err
	}
	scheduler, err := s.cp.StartScheduler(ctx, kubeconfig, "--kube-api-content-type="+*contentType)
	s.controllers = []*controlplane.Process{manager, scheduler}
	return err
}

// play repeats the cycle for the time given, with a kubelet of ours and an eye on the connections.
func (s *show) play(ctx context.Context) error {
	ctx, end := context.WithCancel(ctx)
	var players sync.WaitGroup
	defer players.Wait()
	defer end()
	k, err := startKubelet(ctx, s.through, &players)
	if err != nil {
		return err
	}
	eye := &connections{apiserver: s.cp.URL(), proxy: s.config.Host, processes: s.controllers}
	if s.proxy != nil {
		players.Go(func() { eye.run(ctx) })
	}
	began, cycles := time.Now(), 0
	for ; time.Since(began) < *duration && err == nil; cycles++ {
		err = s.cycle(ctx, cycles)
	}
	end()
	players.Wait()
	s.report.Check(err == nil && cycles > 0, "cycles", "%d in %s (error: %v)", cycles,
		time.Since(began).Round(time.Second), err)
	for _, st := range s.stages {
		st.tell(s.report)
	}
	s.report.Note("our kubelet", "started %d pods, removed %d", k.started.Load(), k.removed.Load())
	s.report.CheckError(k.firstErr(), "our kubelet's errors", "none")
	if s.proxy != nil {
		eye.tell(s.report)
	}
	for _, c := range s.controllers {
		select {
		case <-c.Done():
			s.report.Check(false, c.Name(), "ended: %v", c.Wait())
		default:
			s.report.Check(true, c.Name(), "runs to the end")
		}
	}
	return nil
}

// stage is one kind of step and how long it took each time.
type stage struct {
	name     string
	times    int
	total    time.Duration
	worst    time.Duration
	failures int
}

func (st *stage) tell(r *rig.Report) {
	r.Check(st.failures == 0, st.name, "%d times, %s on average, %s at worst", st.times,
		(st.total / time.Duration(max(st.times, 1))).Round(time.Millisecond), st.worst.Round(time.Millisecond))
}

// patience bounds each step: a budget for a busy machine.
const patience = 3 * time.Minute

// step waits until done says that it is, and notes how long that took.
func (s *show) step(ctx context.Context, name string, done func() (bool, string)) error {
	var st *stage
	for _, known := range s.stages {
		if known.name == name {
			st = known
		}
	}
	if st == nil {
		st = &stage{name: name}
		s.stages = append(s.stages, st)
	}
	began, state := time.Now(), ""
	ok := rig.Eventually(ctx, patience, 50*time.Millisecond, func() bool {
		var is bool
		is, state = done()
		return is
	})
	took := time.Since(began)
	st.times++
	st.total += took
	st.worst = max(st.worst, took)
	if !ok {
		st.failures++
		return fmt.Errorf("%s: after %s: %s", name, took.Round(time.Second), state)
	}
	return nil
}
