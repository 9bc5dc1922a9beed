package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// watchBudget bounds the wait for what a kubectl must have caused: generous, because a foreign
// cluster may be slow.
const watchBudget = 90 * time.Second

// watchArgs print a line per event. The columns are named here, because for its usual table kubectl
// requests one from the server, which is passed through instead of served from memory.
var watchArgs = []string{
	"get", "configmaps", "--selector=app=hello", "--watch", "--output-watch-events",
	"--output=custom-columns=EVENT:.type,NAME:.object.metadata.name,TEXT:.object.data.text",
}

// patchArgs change one object.
var patchArgs = []string{"patch", "configmap", "greeting", `--patch={"data":{"text":"bonjour"}}`}

//go:embed configmaps.yaml
var configMaps []byte

func (s *show) manifest() string { return filepath.Join(s.dir, "configmaps.yaml") }

// writeAndWatch creates, changes and deletes ConfigMaps while a watch prints the events.
func (s *show) writeAndWatch(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, watchBudget)
	defer cancel()
	if err := os.WriteFile(s.manifest(), configMaps, 0o600); err != nil {
		return fmt.Errorf("cannot write a manifest: %w", err)
	}
	s.console.line("$ export KUBECONFIG=%s   # %s, namespace %s", s.proxyKubeconfig(), s.server, namespace)
	if !s.ownNamespace {
		if err := s.run(ctx, "create", "namespace", namespace); err != nil {
			return err
		}
	}
	watch, lines, err := s.startWatch()
	if err != nil {
		return err
	}
	defer watch.stop(time.Second)
	for _, act := range []struct {
		args  []string
		event string // what the watch must print then,
		times int    // in this many lines
	}{
		{[]string{"apply", "--filename", s.manifest()}, "ADDED", 3},
		{patchArgs, "MODIFIED", 1},
		{[]string{"delete", "--filename", s.manifest()}, "DELETED", 3},
	} {
		if err := s.run(ctx, act.args...); err != nil {
			return err
		}
		if err := expect(ctx, lines, act.event, act.times); err != nil {
			return fmt.Errorf("the watch through Spillway: %w", err)
		}
	}
	return nil
}

// startWatch starts a kubectl that watches ConfigMaps. The channel has the lines that it prints.
func (s *show) startWatch() (*child, <-chan string, error) {
	s.console.line("$ kubectl %s &", strings.Join(quote(watchArgs), " "))
	read, write, err := os.Pipe()
	if err != nil {
		return nil, nil, fmt.Errorf("cannot make a pipe: %w", err)
	}
	defer write.Close() // the child has its own
	cmd := s.command(watchArgs...)
	cmd.Stdout, cmd.Stderr = write, write
	watch, err := startChild("kubectl get --watch", cmd)
	if err != nil {
		return nil, nil, errors.Join(err, read.Close())
	}
	lines := make(chan string, 1000) // more than the show can make it print, so that it never waits for us
	go func() {
		defer read.Close()
		s.console.feed(read, "watch", lines)
	}()
	return watch, lines, nil
}

// run shows a kubectl and what it says.
func (s *show) run(ctx context.Context, args ...string) error {
	s.console.line("$ kubectl %s", strings.Join(quote(args), " "))
	var output strings.Builder
	cmd := s.command(args...)
	cmd.Stdout, cmd.Stderr = &output, &output
	c, err := startChild("kubectl", cmd)
	if err != nil {
		return err
	}
	select {
	case <-c.done:
	case <-ctx.Done():
		c.stop(time.Second)
		return context.Cause(ctx)
	}
	s.console.line("%s", output.String())
	if c.err != nil {
		return fmt.Errorf("kubectl %s: %w", args[0], c.err)
	}
	return nil
}

// command is a kubectl that knows of the proxy and of nothing else.
func (s *show) command(args ...string) *exec.Cmd {
	cmd := exec.Command(s.kubectl, args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+s.proxyKubeconfig(), "KUBECACHEDIR="+
		filepath.Join(s.dir, "kubectl-cache"))
	cmd.WaitDelay = time.Second
	return cmd
}
