// Package rig is what the load programs share: a real control plane, the real proxy binary in front
// of it, clients that look closely at what they receive, and a table of checks. Invariant: a
// program that runs to its end prints every check it made, and exits with 0 only if all of them
// passed.
package rig

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"spillway/test/framework/controlplane"
)

// Main is main of a load program: it parses the flags, runs, prints the report and exits. An error
// of run is a failure of the show itself, as when the control plane does not start; what was
// checked until then is printed all the same.
func Main(title string, run func(ctx context.Context, r *Report) error) {
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	report := &Report{title: title, began: time.Now()}
	err := run(ctx, report)
	stop()
	report.print(os.Stdout)
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", title, err)
	}
	if err != nil || report.failed() {
		os.Exit(1)
	}
}

// Say prints progress.
func Say(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "%s "+format+"\n", append([]any{time.Now().Format("15:04:05.000")}, args...)...)
}

// StartControlPlane starts etcd and kube-apiserver. Stop it.
func StartControlPlane(ctx context.Context) (*controlplane.ControlPlane, error) {
	return controlplane.Start(ctx, controlplane.Options{Log: os.Stderr})
}

// Eventually calls f every interval until it is true, and reports whether that happened within the
// time given.
func Eventually(ctx context.Context, within, interval time.Duration, f func() bool) bool {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for !f() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return f()
		}
	}
	return true
}

// Sleep waits, or until ctx ends, which is its error.
func Sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
