package controlplane

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// program says how to run one server of the control plane and how to see that it is ready.
type program struct {
	name  string
	path  string // empty: in the folder of the build
	log   string // the name of its log; empty: the program's
	args  []string
	ready func(context.Context) error
}

const (
	probeEvery    = 50 * time.Millisecond
	progressEvery = 10 * time.Second
	probeTimeout  = 5 * time.Second
	tailLines     = 25
)

// launch starts a program and returns once it is ready. A program that ends or stays unready is
// killed, and the error holds the end of its log.
func (cp *ControlPlane) launch(ctx context.Context, pr program) (*Process, error) {
	started := time.Now()
	if pr.log == "" {
		pr.log = pr.name
	}
	logPath := filepath.Join(cp.dir, pr.log+".log")
	log, err := os.OpenFile(logPath, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, fmt.Errorf("cannot open %s's log: %w", pr.name, err)
	}
	defer log.Close()
	if pr.path == "" {
		pr.path = filepath.Join(cp.bin, pr.name)
	}
	if err := present(pr.path); err != nil {
		return nil, err
	}
	cmd := exec.Command(pr.path, pr.args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = cp.dir, log, log
	p, err := cp.nursery.start(pr.name, cmd)
	if err != nil {
		return nil, fmt.Errorf("cannot start %s: %w", pr.name, err)
	}
	ctx, cancel := context.WithTimeout(ctx, cp.options.ReadyTimeout)
	defer cancel()
	if err := cp.awaitReady(ctx, p, pr.ready); err != nil {
		p.Kill()
		return nil, fmt.Errorf("%s: %w; the end of its log:\n%s", pr.name, err, cp.LogTail(pr.log))
	}
	cp.logf("%s is ready after %.1fs (pid %d)", pr.name, time.Since(started).Seconds(), p.Pid())
	return p, nil
}

// awaitReady polls the probe until it succeeds, the process ends or ctx does.
func (cp *ControlPlane) awaitReady(ctx context.Context, p *Process, probe func(context.Context) error) error {
	ticker := time.NewTicker(probeEvery)
	defer ticker.Stop()
	started := time.Now()
	said := started
	for {
		probeCtx, cancel := context.WithTimeout(ctx, probeTimeout)
		err := probe(probeCtx)
		cancel()
		if err == nil {
			return nil
		}
		if now := time.Now(); now.Sub(said) >= progressEvery {
			said = now
			cp.logf("%s is not ready after %.0fs: %v", p.name, now.Sub(started).Seconds(), err)
		}
		select {
		case <-p.Done():
			return fmt.Errorf("ended before it was ready (%v)", p.Wait())
		case <-ctx.Done():
			return fmt.Errorf("not ready after %.0fs: %w; last answer: %v", time.Since(started).Seconds(), context.Cause(ctx),
				err)
		case <-ticker.C:
		}
	}
}

// LogTail returns the last lines that a program wrote, in all its runs, or why it cannot. A
// temporary Dir takes the logs with it on Stop, so print this before.
func (cp *ControlPlane) LogTail(program string) string {
	data, err := os.ReadFile(filepath.Join(cp.dir, program+".log"))
	if err != nil {
		return err.Error()
	}
	lines := bytes.Split(bytes.TrimRight(data, "\n"), []byte("\n"))
	return string(bytes.Join(lines[max(0, len(lines)-tailLines):], []byte("\n")))
}
