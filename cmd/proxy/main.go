// Command proxy is spillway: a watch fan-out proxy for Kubernetes.
//
// This package turns flags, environment and a configuration file into options, refuses what cannot work before anything starts,
// and wires the parts. It holds no logic of the proxy itself. Invariant: a start that fails prints exactly one line to stderr that
// says what is wrong and what to do, and exits with code 1.
package main

import (
	"context"
	"fmt"
	"io"
	"os"

	"spillway/internal/status"
)

func main() {
	os.Exit(execute(os.Args[1:], os.Environ(), os.Stdout, os.Stderr, run))
}

// execute runs the command line args in the environment environ and returns the exit code. start is what runs once the options are
// known to be good: run, except in tests.
func execute(args, environ []string, stdout, stderr io.Writer, start startFunc) int {
	cmd := newCommand(environ, stderr, start)
	cmd.SetArgs(append([]string{}, args...)) // never nil, for which cobra would read os.Args
	cmd.SetOut(stdout)
	cmd.SetErr(stderr)
	if err := cmd.ExecuteContext(context.Background()); err != nil {
		fmt.Fprintln(stderr, "spillway: "+status.OneLine(err.Error()))
		return 1
	}
	return 0
}
