package main

import (
	"bufio"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"spillway/test/demo/stage"
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
	s.console.Line("$ export KUBECONFIG=%s   # %s, namespace %s", s.proxyKubeconfig(), s.proxy.Server, namespace)
	if !s.ownNamespace {
		if err := s.run(ctx, "create", "namespace", namespace); err != nil {
			return err
		}
	}
	watch, lines, err := s.startWatch()
	if err != nil {
		return err
	}
	defer watch.Stop(time.Second)
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
func (s *show) startWatch() (*stage.Child, <-chan string, error) {
	s.console.Line("$ kubectl %s &", strings.Join(stage.Quote(watchArgs), " "))
	read, write, err := os.Pipe()
	if err != nil {
		return nil, nil, fmt.Errorf("cannot make a pipe: %w", err)
	}
	defer write.Close() // the child has its own
	cmd := s.command(watchArgs...)
	cmd.Stdout, cmd.Stderr = write, write
	watch, err := stage.StartChild("kubectl get --watch", cmd)
	if err != nil {
		return nil, nil, errors.Join(err, read.Close())
	}
	lines := make(chan string, 1000) // more than the show can make it print, so that it never waits for us
	go func() {
		defer read.Close()
		s.feed(read, "watch", lines)
	}()
	return watch, lines, nil
}

// feed prints what r yields, each line behind label, and hands it on. It returns when r ends.
func (s *show) feed(r io.Reader, label string, lines chan<- string) {
	defer close(lines)
	scanner := bufio.NewScanner(r)
	for scanner.Scan() {
		s.console.Line("%s │ %s", label, scanner.Text())
		lines <- scanner.Text()
	}
}

// expect takes lines until n of them hold text.
func expect(ctx context.Context, lines <-chan string, text string, n int) error {
	for seen := 0; seen < n; {
		select {
		case line, open := <-lines:
			if !open {
				return fmt.Errorf("it ended before it had printed %q %d times", text, n)
			}
			if strings.Contains(line, text) {
				seen++
			}
		case <-ctx.Done():
			return fmt.Errorf("it printed %q %d times instead of %d: %w", text, seen, n, context.Cause(ctx))
		}
	}
	return nil
}

// run shows a kubectl and what it says.
func (s *show) run(ctx context.Context, args ...string) error {
	s.console.Line("$ kubectl %s", strings.Join(stage.Quote(args), " "))
	var output strings.Builder
	cmd := s.command(args...)
	cmd.Stdout, cmd.Stderr = &output, &output
	c, err := stage.StartChild("kubectl", cmd)
	if err != nil {
		return err
	}
	select {
	case <-c.Done:
	case <-ctx.Done():
		c.Stop(time.Second)
		return context.Cause(ctx)
	}
	s.console.Line("%s", output.String())
	if c.Err != nil {
		return fmt.Errorf("kubectl %s: %w", args[0], c.Err)
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
