package controlplane

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// Streams are the standard streams of a kubectl; nil ones are empty or thrown away.
type Streams struct {
	In       io.Reader
	Out, Err io.Writer
}

// Kubectl runs kubectl as admin against kube-apiserver and returns what it printed. A later
// --kubeconfig in args wins, for other users and for a proxy. The error holds what kubectl said on
// standard error.
func (cp *ControlPlane) Kubectl(ctx context.Context, args ...string) (string, error) {
	return cp.KubectlInput(ctx, "", args...)
}

// KubectlInput is Kubectl with a standard input, such as a manifest for `apply -f -`.
func (cp *ControlPlane) KubectlInput(ctx context.Context, input string, args ...string) (string, error) {
	var stdout, stderr bytes.Buffer
	p, err := cp.StartKubectl(Streams{In: strings.NewReader(input), Out: &stdout, Err: &stderr}, args...)
	if err != nil {
		return "", err
	}
	stop := context.AfterFunc(ctx, p.Kill)
	defer stop()
	if err := p.Wait(); err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return stdout.String(), fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err,
			strings.TrimSpace(stderr.String()))
	}
	return stdout.String(), nil
}

// StartKubectl starts a kubectl that goes on until it ends or is stopped, such as `get pods -w`.
func (cp *ControlPlane) StartKubectl(streams Streams, args ...string) (*Process, error) {
	path := filepath.Join(cp.bin, "kubectl")
	if err := present(path); err != nil {
		return nil, err
	}
	cmd := exec.Command(path, append([]string{"--kubeconfig=" + cp.Kubeconfig(Admin)}, args...)...)
	cmd.Env = append(os.Environ(), "KUBECACHEDIR="+filepath.Join(cp.dir, "kubectl-cache"), "KUBECONFIG=")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = streams.In, streams.Out, streams.Err
	cmd.WaitDelay = 5 * time.Second // for a standard input that never ends
	p, err := cp.nursery.start("kubectl", cmd)
	if err != nil {
		return nil, fmt.Errorf("cannot start %s: %w", path, err)
	}
	return p, nil
}
