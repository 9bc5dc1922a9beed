// Command demo shows Spillway at work: in front of a control plane of its own, or of the cluster
// that -kubeconfig names. It creates objects through the proxy while a watch through the proxy
// prints them, counts what 200 watches cost upstream with and without it, and then stays until
// Ctrl-C. The invariant: whatever it started or created is gone when it ends.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"
)

type flags struct {
	kubeconfig, spillway, kubectl string
	once                          bool
}

func main() {
	var f flags
	flag.StringVar(&f.kubeconfig, "kubeconfig", "",
		"show it on the cluster of this file instead of a control plane of our own")
	flag.StringVar(&f.spillway, "spillway", "bin/spillway", "the proxy to run")
	flag.StringVar(&f.kubectl, "kubectl", "bin/controlplane/kubectl", "the kubectl to run")
	flag.BoolVar(&f.once, "once", false, "end after the show instead of staying until Ctrl-C")
	flag.Parse()
	if flag.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "demo: unexpected argument %q; see --help\n", flag.Arg(0))
		os.Exit(2)
	}
	f.once = f.once || !interactive()

	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	context.AfterFunc(ctx, stop) // a second signal ends us at once
	ctx = withParent(ctx)
	if err := run(ctx, f); err != nil && ctx.Err() == nil { // SIGTERM during the show is no error
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, f flags) (err error) {
	s := &show{flags: f, console: newConsole(os.Stdout)}
	defer func() { err = errors.Join(err, s.close()) }()
	for _, step := range []struct {
		title string
		do    func(context.Context) error
	}{
		{s.upstreamTitle(), s.startUpstream},
		{"Spillway in front of it", s.startProxy},
		{"kubectl writes through Spillway, a watch through Spillway prints", s.writeAndWatch},
		{fmt.Sprintf("%d watches through Spillway", clients), s.fanOut},
	} {
		s.console.title(step.title)
		if err := step.do(ctx); err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return err
		}
	}
	if f.once {
		return nil
	}
	s.suggest()
	return s.stay(ctx)
}

// interactive reports whether there is a terminal, where Ctrl-C can be pressed.
func interactive() bool {
	return os.Getenv("DEMO_ONCE") == "" && isTerminal(os.Stdin) && isTerminal(os.Stdout)
}

// withParent returns a context that ends with ctx or when our parent (make) dies without a word to
// us.
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
