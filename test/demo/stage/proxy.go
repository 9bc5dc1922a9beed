package stage

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

// Proxy is a Spillway that the demo has started.
type Proxy struct {
	*Child
	Server, Metrics string // where it listens, http://…
	Log             string // the file with its log
}

// StartProxy starts Spillway on its default ports, or on free ones where those are taken, and
// returns when it is ready. Its log goes into dir. The result is there whenever a process is, even
// with an error: Stop it.
func StartProxy(ctx context.Context, console *Console, binary, dir, kubeconfig, resources string) (*Proxy, error) {
	const attempts = 5
	for n := 1; ; n++ {
		p, err := startProxy(ctx, console, binary, dir, kubeconfig, resources)
		if err == nil || n == attempts || !strings.Contains(err.Error(), "is in use by another process") {
			return p, err
		}
		console.Line("another process took the port meanwhile; once more")
	}
}

func startProxy(ctx context.Context, console *Console, binary, dir, kubeconfig, resources string) (*Proxy, error) {
	listen, err := address("127.0.0.1:8001")
	if err != nil {
		return nil, err
	}
	metrics, err := address("127.0.0.1:9464")
	if err != nil {
		return nil, err
	}
	args := []string{
		"--kubeconfig", kubeconfig, "--resources", resources, "--listen-identity", "self",
		"--listen", listen, "--metrics-listen", metrics, "--drain-period", drainPeriod.String(), "--log-format", "console",
	}
	p := &Proxy{Server: "http://" + listen, Metrics: "http://" + metrics, Log: filepath.Join(dir, "spillway.log")}
	log, err := os.Create(p.Log)
	if err != nil {
		return nil, fmt.Errorf("cannot make the proxy's log: %w", err)
	}
	defer log.Close()
	cmd := exec.Command(binary, args...)
	cmd.Stdout, cmd.Stderr = log, log
	console.Line("$ spillway %s", strings.Join(Quote(args), " "))
	if p.Child, err = StartChild("spillway", cmd); err != nil {
		return nil, err
	}
	if err := p.awaitReady(ctx); err != nil {
		return p, fmt.Errorf("spillway: %w; the end of its log:\n%s", err, TailOf(p.Log))
	}
	return p, nil
}

// Stop drains the proxy and returns when it is gone.
func (p *Proxy) Stop() { p.Child.Stop(drainPeriod + 5*time.Second) }

// Ended is the error for a proxy that was not stopped, and is gone.
func (p *Proxy) Ended() error {
	return errors.New("spillway ended by itself; the end of its log:\n" + TailOf(p.Log))
}

func (p *Proxy) awaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyBudget)
	defer cancel()
	for {
		_, err := Fetch(ctx, p.Metrics+"/readyz")
		if err == nil {
			return nil
		}
		select {
		case <-p.Done:
			return fmt.Errorf("ended before it was ready (%v)", p.Err)
		case <-ctx.Done():
			return fmt.Errorf("not ready within %s: %w", readyBudget, err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

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

// Fetch returns the body of a 200; anything else is an error.
func Fetch(ctx context.Context, url string) (string, error) {
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

// Quote makes args safe to paste into a shell.
func Quote(args []string) []string {
	quoted := make([]string, len(args))
	for i, arg := range args {
		if strings.ContainsAny(arg, " *?$'\"\\&;|<>()[]{}~#`!") {
			arg = "'" + strings.ReplaceAll(arg, "'", `'\''`) + "'"
		}
		quoted[i] = arg
	}
	return quoted
}

// TailOf returns the last bytes of a log file, or why it cannot.
func TailOf(path string) string {
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
