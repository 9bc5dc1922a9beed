// Command acttwo is the second act of the demo: Spillway in front of a control plane of the demo's
// own, or of the cluster that -kubeconfig names. It creates objects through the proxy while a watch
// through the proxy prints them, counts what 200 watches cost upstream with and without it, and
// then stays until Ctrl-C. The invariant: whatever it started or created is gone when it ends.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"

	"spillway/test/demo/stage"
)

type flags struct {
	kubeconfig, spillway, kubectl string
}

func main() {
	var f flags
	flag.StringVar(&f.kubeconfig, "kubeconfig", "",
		"show it on the cluster of this file instead of a control plane of our own")
	flag.StringVar(&f.spillway, "spillway", "bin/spillway", "the proxy to run")
	flag.StringVar(&f.kubectl, "kubectl", "bin/controlplane/kubectl", "the kubectl to run")
	stage.Main(func(ctx context.Context) error { return run(ctx, f) })
}

func run(ctx context.Context, f flags) (err error) {
	s := &show{flags: f, console: stage.NewConsole(os.Stdout)}
	defer func() { err = errors.Join(err, s.close()) }()
	s.console.Act("Act two: Spillway in front of a real API server")
	for _, step := range []struct {
		title string
		do    func(context.Context) error
	}{
		{s.upstreamTitle(), s.startUpstream},
		{"Spillway in front of it", s.startProxy},
		{"kubectl writes through Spillway, a watch through Spillway prints", s.writeAndWatch},
		{fmt.Sprintf("%d watches through Spillway", clients), s.fanOut},
	} {
		s.console.Title(step.title)
		if err := step.do(ctx); err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return err
		}
	}
	if !stage.Interactive() {
		return nil
	}
	s.suggest()
	return s.stay(ctx)
}
