package conformance

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"spillway/test/framework/controlplane"
	"spillway/test/framework/process"
)

// churn is the namespace that is written to while informers run.
const churn = "churn"

// The environment by which this test binary runs informers instead of tests.
const (
	childVariable   = "CONFORMANCE_CHILD"
	proxiedVariable = "CONFORMANCE_PROXIED" // kubeconfig
	directVariable  = "CONFORMANCE_DIRECT"  // kubeconfig
)

// testInformers runs informers through the proxies in processes of their own, where client-go's own
// detector panics on any difference between what a watch-list and an exact LIST say. They start
// during writes, and all of them must end with the API server's state once these have ended.
func (s *suite) testInformers(t *testing.T) {
	s.makeNamespace(t, churn)
	s.informersDuring(t, func() {})
}

// testInformersThroughCrash lets the API server crash while informers run.
func (s *suite) testInformersThroughCrash(t *testing.T) {
	s.informersDuring(t, func() {
		s.cp.APIServer().Kill()
		must(t, s.cp.StartAPIServer(t.Context()))
	})
}

func (s *suite) informersDuring(t *testing.T, trouble func()) {
	t.Helper()
	w := &churner{suite: s, stop: make(chan struct{}), ended: make(chan struct{})}
	go w.run(t.Context())
	served := s.plain.watches(t)
	s.secure2.Client.CloseIdleConnections()
	process.Awaiting(t, "no client to use HTTP/2", func(context.Context) error {
		if n := s.secure.metric(t, "spillway_http2_connections"); n > 0 {
			return fmt.Errorf("%d connections", n)
		}
		return nil
	})
	var processes []*informers
	for _, e := range []*endpoint{s.plain, s.secure} {
		for _, watchList := range []string{"true", "false"} {
			processes = append(processes, s.startInformers(t, e, watchList))
		}
	}
	for _, p := range processes {
		p.awaitSynced(t)
	}
	// client-go chooses HTTP/2 where it is offered: a handful of connections, whatever the number of
	// watches.
	if n := s.secure.metric(t, "spillway_http2_connections"); n < 2 || n > 6 {
		t.Errorf("%d HTTP/2 connections from two processes of informers", n)
	}
	w.awaitWrites(t, 100)
	trouble()
	w.awaitWrites(t, 100)
	close(w.stop)
	<-w.ended
	for _, p := range processes {
		p.expectEqual(t)
		s.show(t, p.rules, memory)
	}
	// All of them, in each of the two processes: typed in two formats, dynamic, of metadata.
	if rise, want := s.plain.watches(t)-served, 2*(2*7+2+2); late.Prompt() && rise < want {
		t.Errorf("%d watches were served from memory, want %d", rise, want)
	}
}

// informers is a process of informers.
type informers struct {
	name, rules string
	*process.Child
	log   *process.Log
	quiet io.Closer // closed when there are no more writes
}

func (s *suite) startInformers(t *testing.T, e *endpoint, watchList string) *informers {
	t.Helper()
	self, err := os.Executable()
	must(t, err)
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), childVariable+"=informers", proxiedVariable+"="+e.kubeconfig(t),
		directVariable+"="+s.cp.Kubeconfig(controlplane.Admin),
		"KUBE_FEATURE_WatchListClient="+watchList, "KUBE_WATCHLIST_INCONSISTENCY_DETECTOR=true")
	in, quiet := io.Pipe()
	p := &informers{name: e.Name + " with WatchListClient=" + watchList, rules: "W-192 W-193", log: process.NewLog(t),
		quiet: quiet}
	if watchList == "true" {
		p.rules = "W-190 W-191 W-193 W-198 W-215"
	}
	p.Child, err = process.Start(cmd, in, p.log.File)
	must(t, err)
	t.Cleanup(func() { quiet.Close(); p.Stop(0) })
	return p
}

// synced is what a process of informers says when all of them have their first state.
const synced = "informers have synced"

func (p *informers) awaitSynced(t *testing.T) {
	t.Helper()
	process.Awaiting(t, p.name, func(context.Context) error {
		if bytes.Contains(p.log.Text(), []byte(synced)) {
			return nil
		}
		if p.Ended() {
			p.log.Show(t)
			t.Fatalf("%s: %v", p.name, p.Err)
		}
		return errors.New("not synced")
	})
}

func (p *informers) expectEqual(t *testing.T) {
	t.Helper()
	must(t, p.quiet.Close())
	<-p.Done // it gives up by itself
	if p.Err != nil {
		t.Errorf("%s: %v", p.name, p.Err)
		p.log.Show(t)
	}
}

// kubeconfig writes the file by which programs use this way to the cluster.
func (e *endpoint) kubeconfig(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	must(t, controlplane.WriteKubeconfig(path, e.Config))
	return path
}

// churner writes until it is stopped: what it makes stays, changes and goes.
type churner struct {
	*suite
	stop, ended chan struct{}
	writes      atomic.Int64
}

// run writes. Errors are left alone: the API server may be away.
func (w *churner) run(ctx context.Context) {
	defer close(w.ended)
	for i := 0; ; i++ {
		select {
		case <-w.stop:
			return
		case <-ctx.Done():
			return
		default:
		}
		w.write(ctx, i)
		w.writes.Add(1)
	}
}

func (w *churner) write(ctx context.Context, i int) {
	maps, objects := w.client.CoreV1().ConfigMaps(churn), w.dynamic.Resource(widgets).Namespace(churn)
	pods := w.client.CoreV1().Pods(churn)
	name := fmt.Sprintf("thing-%d", i%23)
	if i%23 < 3 || i%5 == 0 {
		_ = maps.Delete(ctx, name, metav1.DeleteOptions{})
		_ = objects.Delete(ctx, name, metav1.DeleteOptions{})
		_ = pods.Delete(ctx, name, metav1.DeleteOptions{GracePeriodSeconds: new(int64)})
	}
	o := configMap(churn, name, fmt.Sprint(i%4), fmt.Sprint(i))
	if _, err := maps.Update(ctx, o, metav1.UpdateOptions{}); err != nil {
		_, _ = maps.Create(ctx, o, metav1.CreateOptions{})
	}
	if _, err := objects.Create(ctx, widget(name, "red", int64(i)), metav1.CreateOptions{}); err != nil {
		_, _ = objects.Patch(ctx, name, mergeType, fmt.Appendf(nil, `{"spec":{"size":%d}}`, i), metav1.PatchOptions{})
	}
	if _, err := pods.Create(ctx, pod(name, "n1"), metav1.CreateOptions{}); err != nil {
		_, _ = pods.Patch(ctx, name, mergeType, fmt.Appendf(nil, `{"status":{"message":"%d"}}`, i), metav1.PatchOptions{},
			"status")
	}
}

// awaitWrites waits for that many more rounds of writes.
func (w *churner) awaitWrites(t *testing.T, more int64) {
	t.Helper()
	from := w.writes.Load()
	process.Awaiting(t, "writes", func(context.Context) error {
		if w.writes.Load() < from+more {
			return errors.New("not enough of them")
		}
		return nil
	})
}

// restOf loads a kubeconfig named by a variable.
func restOf(variable string) (*rest.Config, error) {
	config, err := loadConfig(os.Getenv(variable))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", variable, err)
	}
	config.QPS = -1
	return config, nil
}

// runChild is main in a process of informers: it ends with 0 when all of them have had the
// API server's state.
func runChild(out io.Writer) int {
	if err := informersUntilEqual(); err != nil {
		fmt.Fprintln(out, err)
		return 1
	}
	return 0
}
