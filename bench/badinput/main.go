// Command badinput shows that the proxy answers every bad input with one line that says what is
// wrong, and never with a stack trace. An API server that is unreachable is no bad input: the proxy
// says so and waits. What is bad about a request is upstream's to say: its exact body must come
// through.
package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"spillway/bench/rig"
)

func main() { rig.Main("badinput", run) }

func run(ctx context.Context, r *rig.Report) error {
	binary, err := rig.Binary()
	if err != nil {
		return err
	}
	cp, err := rig.StartControlPlane(ctx)
	if err != nil {
		return err
	}
	defer cp.Stop()
	cases, cleanUp, err := makeCases(ctx, cp)
	if err != nil {
		return err
	}
	defer cleanUp()
	for _, c := range cases {
		c.try(ctx, binary, r)
	}
	return requests(ctx, cp, r)
}

// patience bounds one start. A question to an API server that does not answer is given up after 15
// s.
const patience = 40 * time.Second

// badCase is a start that must fail or, if it waits, say for what.
type badCase struct {
	name  string
	args  []string
	env   []string
	says  []string // parts that the line must have
	waits bool
}

func (c badCase) try(ctx context.Context, binary string, r *rig.Report) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, binary, c.args...)
	cmd.Env = append(rig.Environ(), c.env...)
	if c.waits {
		line, err := c.wait(cmd)
		r.Check(err == nil, c.name, "%s%s", line, problem(err))
		return
	}
	var stderr, stdout bytes.Buffer
	cmd.Stderr, cmd.Stdout = &stderr, &stdout
	err := cmd.Run()
	wrong := c.judge(err, stdout.String(), stderr.String(), ctx.Err() != nil)
	r.Check(wrong == "", c.name, "%s", strings.TrimSpace(stderr.String())+wrong)
}

// wait starts the proxy, returns the line with which it says that it waits, and ends it by SIGTERM.
func (c badCase) wait(cmd *exec.Cmd) (string, error) {
	stderr, err := cmd.StderrPipe()
	if err != nil {
		return "", err
	}
	if err := cmd.Start(); err != nil {
		return "", err
	}
	said := ""
	for lines := bufio.NewScanner(stderr); lines.Scan(); {
		if said == "" && c.missing(lines.Text()) == "" {
			said = lines.Text()
			if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
				return said, err
			}
		}
	}
	err = cmd.Wait()
	if said == "" {
		return "", fmt.Errorf("no line says all of %q: %w", c.says, err)
	}
	return said, err
}

// problem marks an error behind a line.
func problem(err error) string {
	if err == nil {
		return ""
	}
	return " ← " + err.Error()
}

// missing returns what the line does not say and must, "" if nothing.
func (c badCase) missing(line string) string {
	for _, part := range c.says {
		if !strings.Contains(line, part) {
			return part
		}
	}
	return ""
}

// judge returns what is wrong with how the proxy ended, "" if nothing.
func (c badCase) judge(err error, stdout, stderr string, late bool) string {
	var exit *exec.ExitError
	lines := problemLines(stderr)
	switch {
	case late:
		return fmt.Sprintf(" ← still running after %s", patience)
	case err == nil:
		return " ← exit code 0"
	case !errors.As(err, &exit) || exit.ExitCode() != 1:
		return fmt.Sprintf(" ← %v, expected exit code 1", err)
	case stdout != "":
		return " ← wrote to stdout: " + stdout
	case len(lines) != 1:
		return fmt.Sprintf(" ← %d lines", len(lines))
	case strings.Contains(stderr, "goroutine ") || strings.Contains(stderr, ".go:"):
		return " ← a stack trace"
	}
	if part := c.missing(lines[0]); part != "" {
		return fmt.Sprintf(" ← does not say %q", part)
	}
	return ""
}

// problemLines are the lines of stderr.
func problemLines(stderr string) []string {
	return strings.FieldsFunc(stderr, func(c rune) bool { return c == '\n' })
}
