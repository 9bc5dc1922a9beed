// Command controlplane runs a real control plane on free loopback ports until SIGINT, SIGTERM or
// the end of the process that started it. It prints the path of an admin kubeconfig on standard
// output once everything is ready.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"spillway/test/framework/controlplane"
)

type flags struct {
	dir, kubeconfigOut, nodes string
	controllerManager         bool
	scheduler                 bool
}

func main() {
	var f flags
	flag.StringVar(&f.dir, "dir", "",
		"keep data, logs and kubeconfigs in this folder (default: a temporary one, removed at the end)")
	flag.StringVar(&f.kubeconfigOut, "kubeconfig-out", "",
		"write the admin kubeconfig to this file as well, once everything is ready; removed at the end")
	flag.StringVar(&f.nodes, "nodes", "", "comma-separated names of Ready nodes to make by hand")
	flag.BoolVar(&f.controllerManager, "controller-manager", false, "run kube-controller-manager too")
	flag.BoolVar(&f.scheduler, "scheduler", false, "run kube-scheduler too")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	ctx = withParent(ctx)
	if err := run(ctx, f); err != nil && ctx.Err() == nil { // a signal during the start is no error
		fmt.Fprintln(os.Stderr, "controlplane:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, f flags) error {
	if flag.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q; see --help", flag.Arg(0))
	}
	cp, err := controlplane.Start(ctx, controlplane.Options{
		Dir:               f.dir,
		ControllerManager: f.controllerManager,
		Scheduler:         f.scheduler,
		Log:               os.Stderr,
	})
	if err != nil {
		return err
	}
	defer cp.Stop()
	for name := range strings.SplitSeq(f.nodes, ",") {
		if name == "" {
			continue
		}
		if _, err := cp.MakeNode(ctx, name); err != nil {
			return err
		}
	}
	kubeconfig := cp.Kubeconfig(controlplane.Admin)
	if f.kubeconfigOut != "" {
		kubeconfig = f.kubeconfigOut
		if err := controlplane.WriteKubeconfig(kubeconfig, cp.Config(controlplane.Admin)); err != nil {
			return err
		}
		defer remove(kubeconfig)
	}
	fmt.Println(kubeconfig)
	select {
	case <-ctx.Done():
		return nil
	case <-cp.Etcd().Done():
		return errors.New("etcd ended by itself; the end of its log:\n" + cp.LogTail("etcd"))
	case <-cp.APIServer().Done():
		return errors.New("kube-apiserver ended by itself; the end of its log:\n" + cp.LogTail("kube-apiserver"))
	}
}

func remove(path string) {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		fmt.Fprintln(os.Stderr, "controlplane:", err)
	}
}

// withParent returns a context that ends with ctx or when our parent dies, as `go run` and a shell
// script's death leave us. Polling, because a parent-death signal would also come when merely the
// parent's forking thread ends.
func withParent(ctx context.Context) context.Context {
	ctx, cancel := context.WithCancel(ctx)
	parent := os.Getppid()
	go func() {
		defer cancel()
		ticker := time.NewTicker(250 * time.Millisecond)
		defer ticker.Stop()
		for os.Getppid() == parent {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
			}
		}
	}()
	return ctx
}
