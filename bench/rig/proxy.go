package rig

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os/exec"
	"syscall"
	"time"

	"github.com/prometheus/procfs"
	"k8s.io/client-go/rest"
)

// Proxy is one run of the proxy binary.
type Proxy struct {
	URL        string // of the plain listener
	TLSURL     string // of the TLS listener, "" without one
	MetricsURL string // of health, metrics and profiles
	Log        *Log

	cmd  *exec.Cmd
	done chan struct{}
	err  error // how it ended; read after done
}

// readyWait bounds how long a proxy may take to be ready: a budget for a busy machine.
const readyWait = time.Minute

// StartProxy builds the proxy and starts it on free loopback ports, acting as the identity in
// kubeconfig, and returns when it is ready. args are added to its command line. Stop it.
func StartProxy(ctx context.Context, kubeconfig string, args ...string) (*Proxy, error) {
	return startProxy(ctx, nil, kubeconfig, args...)
}

// startProxy starts a proxy in a control group, if there is one.
func startProxy(ctx context.Context, group *Cgroup, kubeconfig string, args ...string) (*Proxy, error) {
	binary, err := Binary()
	if err != nil {
		return nil, err
	}
	p := &Proxy{Log: newLog(), done: make(chan struct{})}
	p.cmd = exec.Command(binary, append([]string{
		"--kubeconfig=" + kubeconfig, "--listen=127.0.0.1:0", "--metrics-listen=127.0.0.1:0", "--listen-identity=self",
		"--profiling", "--allow-core-dumps",
		"--log-format=json",
	}, args...)...)
	p.cmd.Env, p.cmd.Stderr = Environ(), p.Log
	if group != nil {
		group.enter(p.cmd)
	}
	if err := Start(p.cmd); err != nil {
		return nil, fmt.Errorf("starting the proxy: %w", err)
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.done)
	}()
	if err := p.awaitReady(ctx); err != nil {
		p.Kill()
		return nil, fmt.Errorf("the proxy: %w; its log:\n%s", err, p.Log)
	}
	Say("proxy is ready at %s %s (pid %d)", p.URL, p.TLSURL, p.Pid())
	return p, nil
}

func (p *Proxy) awaitReady(ctx context.Context) error {
	ready := Eventually(ctx, readyWait, 20*time.Millisecond, func() bool {
		select {
		case <-p.done:
			return true
		default:
		}
		p.findAddresses()
		if p.URL == "" || p.MetricsURL == "" {
			return false
		}
		code, err := p.Readyz(ctx)
		return err == nil && code == http.StatusOK
	})
	select {
	case <-p.done:
		return fmt.Errorf("ended before it was ready (%v)", p.err)
	default:
	}
	if !ready {
		return fmt.Errorf("not ready after %s", readyWait)
	}
	return nil
}

// findAddresses reads from the log where the proxy listens.
func (p *Proxy) findAddresses() {
	for _, l := range p.Log.Lines() {
		switch l.Message {
		case "serving plain HTTP":
			p.URL = "http://" + l.Field("address")
		case "serving HTTPS":
			p.TLSURL = "https://" + l.Field("address")
		case "serving health and metrics", "serving health":
			p.MetricsURL = "http://" + l.Field("address")
		}
	}
}

// Readyz requests readiness and returns the status code.
func (p *Proxy) Readyz(ctx context.Context) (int, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, p.MetricsURL+"/readyz", nil)
	if err != nil {
		return 0, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, err
	}
	return response.StatusCode, response.Body.Close()
}

// Config is what client-go needs to talk to the plain listener, without a limit on its request
// rate.
func (p *Proxy) Config() *rest.Config { return &rest.Config{Host: p.URL, QPS: -1} }

// Metrics reads the proxy's metrics.
func (p *Proxy) Metrics() *Scraper {
	return &Scraper{client: http.DefaultClient, url: p.MetricsURL + "/metrics"}
}

// Pid is the process id.
func (p *Proxy) Pid() int { return p.cmd.Process.Pid }

// Done is closed when the process has ended.
func (p *Proxy) Done() <-chan struct{} { return p.done }

// ExitCode is how the process ended, after Done; -1 if by a signal.
func (p *Proxy) ExitCode() int {
	var exit *exec.ExitError
	switch {
	case p.err == nil:
		return 0
	case errors.As(p.err, &exit):
		return exit.ExitCode()
	}
	return -1
}

// Signal sends a signal.
func (p *Proxy) Signal(s syscall.Signal) error { return p.cmd.Process.Signal(s) }

// Kill ends the process at once and returns when it is gone.
func (p *Proxy) Kill() {
	_ = p.Signal(syscall.SIGKILL) // fails only when it is gone already
	<-p.done
}

// Usage is what a process uses.
type Usage struct {
	CPU time.Duration // so far, user and system, in steps of 10 ms
	RSS int64         // now, in bytes
}

// Usage reads what the proxy uses.
func (p *Proxy) Usage() (Usage, error) { return UsageOf(p.Pid()) }

// UsageOf reads what any process uses.
func UsageOf(pid int) (Usage, error) {
	proc, err := procfs.NewProc(pid)
	if err != nil {
		return Usage{}, err
	}
	stat, err := proc.Stat()
	if err != nil {
		return Usage{}, err
	}
	return Usage{CPU: time.Duration(stat.CPUTime() * float64(time.Second)), RSS: int64(stat.ResidentMemory())}, nil
}
