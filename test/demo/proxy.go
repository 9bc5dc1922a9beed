package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

const (
	drainPeriod = 2 * time.Second
	readyBudget = 60 * time.Second
)

func (s *show) proxyLog() string { return filepath.Join(s.dir, "spillway.log") }

// startProxy starts Spillway on its default ports, or on free ones where those are taken, and
// returns when it is ready.
func (s *show) startProxy(ctx context.Context) error {
	listen, err := address("127.0.0.1:8001")
	if err != nil {
		return err
	}
	metrics, err := address("127.0.0.1:9464")
	if err != nil {
		return err
	}
	args := []string{
		"--kubeconfig", s.upstreamFile, "--resources", "*", "--listen-identity", "self",
		"--listen", listen, "--metrics-listen", metrics, "--drain-period", drainPeriod.String(), "--log-format", "console",
	}
	log, err := os.Create(s.proxyLog())
	if err != nil {
		return fmt.Errorf("cannot make the proxy's log: %w", err)
	}
	defer log.Close()
	cmd := exec.Command(s.spillway, args...)
	cmd.Stdout, cmd.Stderr = log, log
	s.console.line("$ spillway %s", strings.Join(quote(args), " "))
	started := time.Now()
	if s.proxy, err = startChild("spillway", cmd); err != nil {
		return err
	}
	s.server, s.metrics = "http://"+listen, "http://"+metrics
	if err := s.awaitReady(ctx); err != nil {
		return fmt.Errorf("spillway: %w; the end of its log:\n%s", err, tailOf(s.proxyLog()))
	}
	s.console.line("ready after %.1fs", time.Since(started).Seconds())
	return s.writeKubeconfig()
}

func (s *show) awaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyBudget)
	defer cancel()
	for {
		_, err := fetch(ctx, s.metrics+"/readyz")
		if err == nil {
			return nil
		}
		select {
		case <-s.proxy.done:
			return fmt.Errorf("ended before it was ready (%v)", s.proxy.err)
		case <-ctx.Done():
			return fmt.Errorf("not ready within %s: %w", readyBudget, err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// writeKubeconfig makes a kubeconfig that has nothing but the proxy's address in it, and the demo's
// namespace.
func (s *show) writeKubeconfig() error {
	text := fmt.Sprintf(`apiVersion: v1
kind: Config
clusters: [{name: spillway, cluster: {server: %q}}]
contexts: [{name: spillway, context: {cluster: spillway, namespace: %s}}]
current-context: spillway
`, s.server, namespace)
	if err := os.WriteFile(s.proxyKubeconfig(), []byte(text), 0o600); err != nil {
		return fmt.Errorf("cannot write a kubeconfig: %w", err)
	}
	return nil
}

func (s *show) proxyKubeconfig() string { return filepath.Join(s.dir, "kubeconfig") }

// address returns the wanted loopback address if it is free, else one on a port that is.
func address(wanted string) (string, error) {
	l, err := net.Listen("tcp", wanted)
	if err != nil {
		if l, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
			return "", fmt.Errorf("no loopback port to listen on: %w", err)
		}
	}
	return l.Addr().String(), l.Close()
}

// fetch returns the body of a 200; anything else is an error.
func fetch(ctx context.Context, url string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = errors.New(response.Status)
	}
	return string(body), err
}

// quote makes args safe to paste into a shell.
func quote(args []string) []string {
	quoted := make([]string, len(args))
	for i, arg := range args {
		if strings.ContainsAny(arg, " *?$'\"\\&;|<>()[]{}~#`!") {
			arg = "'" + strings.ReplaceAll(arg, "'", `'\''`) + "'"
		}
		quoted[i] = arg
	}
	return quoted
}

// tailOf returns the last bytes of a log file, or why it cannot.
func tailOf(path string) string {
	const tailBytes = 2000
	f, err := os.Open(path)
	if err != nil {
		return err.Error()
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil && info.Size() > tailBytes {
		if _, err := f.Seek(-tailBytes, io.SeekEnd); err != nil {
			return err.Error()
		}
	}
	text, err := io.ReadAll(f)
	if err != nil {
		return err.Error()
	}
	return string(text)
}
