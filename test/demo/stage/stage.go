// Package stage is what both acts of the demo stand on: a console, children that end with the demo,
// a Spillway of the demo's own, and the main function of a program that ends cleanly on Ctrl-C.
package stage

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// Main runs a program of the demo whose flags are registered already. It ends the context of run on
// SIGINT, SIGTERM, SIGHUP, and when the parent dies. An error of run ends the program with code 1,
// unless the context has ended.
func Main(run func(context.Context) error) {
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	context.AfterFunc(ctx, stop) // a second signal ends us at once
	ctx = withParent(ctx)
	if err := run(ctx); err != nil && ctx.Err() == nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

// Interactive reports whether there is a terminal, where Ctrl-C can be pressed.
func Interactive() bool {
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
