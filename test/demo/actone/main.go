// Command actone is the first act of the demo, and the one that starts the second. It shows
// Spillway's main job in front of an API server made for tests, which runs in this process, and
// checks each claim that it prints. Meanwhile it builds what act two needs, beside the show, and
// then becomes act two. It links little that Spillway does not, because both are compiled in front
// of the reader's eyes.
//
// The invariant: whatever it started is gone when it ends, with all that a build has started.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"syscall"

	"spillway/test/demo/stage"
)

type flags struct {
	spillway     string
	buildCommand string // builds what act two needs
	log          string // of that build
	stay         bool
	next         []string // act two's command line; empty: there is none
}

func main() {
	var f flags
	flag.StringVar(&f.spillway, "spillway", "bin/spillway", "the proxy to run")
	flag.StringVar(&f.buildCommand, "build", "", "the command that builds what act two needs")
	flag.StringVar(&f.log, "log", "bin/demo-build.log", "where the output of that build goes")
	flag.BoolVar(&f.stay, "stay", false, "stay until Ctrl-C after act one")
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "Usage: actone [flags] [-build COMMAND ACT_TWO ARGUMENTS…]")
		flag.PrintDefaults()
	}
	flag.Parse()
	f.next = flag.Args()
	if (len(f.next) > 0) != (f.buildCommand != "") {
		flag.Usage()
		os.Exit(2)
	}
	stage.Main(func(ctx context.Context) error { return run(ctx, f) })
}

// run plays act one and then becomes act two, if there is one.
func run(ctx context.Context, f flags) error {
	s := &show{flags: f, console: stage.NewConsole(os.Stdout), budget: claimBudget, settle: settleBudget}
	if err := s.play(ctx); err != nil || len(f.next) == 0 {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return fmt.Errorf("cannot run %s: %w", f.next[0], syscall.Exec(f.next[0], f.next, os.Environ()))
}

// play shows act one while what act two needs is built, and returns when both are over.
func (s *show) play(ctx context.Context) (err error) {
	defer func() { err = errors.Join(err, s.close()) }()
	if s.dir, err = os.MkdirTemp("", "spillway-demo-"); err != nil {
		return fmt.Errorf("cannot make a folder: %w", err)
	}
	if len(s.next) > 0 {
		if err := s.startBuild(); err != nil {
			return err
		}
	}
	s.console.Act("Act one: Spillway in front of an API server made for tests, in this process")
	for _, step := range s.steps() {
		if err := step.do(ctx); err != nil {
			return fmt.Errorf("act one, %s: %w", step.name, err)
		}
	}
	return s.stayOrGo(ctx)
}
