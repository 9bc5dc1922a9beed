// Command proxy is spillway: a watch fan-out proxy for Kubernetes.
//
// This package builds the parts of the process from its settings, starts them and ends them; each
// subcommand has a file. It holds no logic of the proxy itself: that is in packages below internal,
// which are tested without each other.
//
// Invariant: a start that fails prints exactly one line to stderr, with the fault and the remedy,
// and exits with code 1. Everything on stderr goes through one logging.Output, so that nothing
// waits for its reader.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"spillway/internal/logging"
	"spillway/internal/status"
)

// errPrinted is the error of a command that has printed what has failed.
var errPrinted = errors.New("what has failed is printed already")

func main() {
	os.Exit(execute(os.Args[1:], os.Environ(), os.Stdout, os.Stderr, run))
}

// execute runs the command line args in the environment environ and returns the exit code. start
// runs once the settings are known to be good: run, except in tests.
func execute(args, environ []string, stdout, stderr io.Writer, start startFunc) int {
	sink := logging.NewOutput(stderr)
	defer func() { _ = sink.Sync() }() // which has a bound
	cmd := newCommand(environ, sink, start)
	cmd.SetArgs(append([]string{}, args...)) // never nil, for which cobra would read os.Args
	cmd.SetOut(stdout)
	cmd.SetErr(sink)
	switch err := cmd.ExecuteContext(context.Background()); {
	case errors.Is(err, errPrinted):
		return 1
	case err != nil:
		fmt.Fprintln(sink, "spillway: "+status.OneLine(err.Error()))
		return 1
	}
	return 0
}
