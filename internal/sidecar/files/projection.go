// Package files writes what the in-cluster configuration of a pod's other containers reads, so that
// it leads them to the proxy in their pod. That is a copy of the pod's service account, and the
// authority of the proxy's certificate for loopback.
//
// Invariants: a container reads a token, a namespace and certificates that belong together, even
// while files are written. And the key that signed the proxy's certificate is dropped before the
// certificate is used.
package files

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"time"

	"go.uber.org/zap"
)

// AccountDir is where a pod's containers find its service account, and where their in-cluster
// configuration reads it.
const AccountDir = "/var/run/secrets/kubernetes.io/serviceaccount"

// followInterval is how late a rotated token may be. The kubelet rotates it when a fifth of its
// lifetime is left, which is minutes at least.
const followInterval = 5 * time.Second

// Projection is a copy of a service account, whose ca.crt also has the authority of the proxy.
type Projection struct {
	from      string
	to        Directory
	authority []byte
	log       *zap.Logger

	written map[string][]byte // the files of the last Write; owned by the caller of Write or Run
	failed  string            // the last error that was logged
}

// NewProjection makes a Projection of one folder in another. To ca.crt it adds authority, in PEM.
// The original authorities stay, for clients that connect to the API server by another name, and to
// kubelets.
func NewProjection(from, to string, authority []byte, log *zap.Logger) *Projection {
	return &Projection{from: from, to: Directory{to}, authority: authority, log: log}
}

// Write copies the files, if one of them has changed. An error names the file.
func (p *Projection) Write() error {
	files := map[string][]byte{}
	for _, name := range []string{"token", "namespace", "ca.crt"} {
		text, err := os.ReadFile(filepath.Join(p.from, name)) // #nosec G304 -- the pod's own service account
		if err != nil {
			return err
		}
		files[name] = text
	}
	if len(bytes.TrimSpace(files["token"])) == 0 {
		return fmt.Errorf("%s is empty", filepath.Join(p.from, "token"))
	}
	files["ca.crt"] = append(bytes.Clone(p.authority), files["ca.crt"]...)
	if maps.EqualFunc(files, p.written, bytes.Equal) {
		return nil
	}
	if err := p.to.Write(files); err != nil {
		return err
	}
	p.written = files
	return nil
}

// Run copies every followInterval until ctx ends. After a failure the last copy stays.
func (p *Projection) Run(ctx context.Context) {
	ticks := time.NewTicker(followInterval)
	defer ticks.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticks.C:
		}
		before := p.written["token"]
		err := p.Write()
		switch {
		case err != nil && err.Error() != p.failed:
			p.log.Warn("the pod's other containers keep the token that they have: it cannot be copied", zap.Error(err))
			p.failed = err.Error()
		case err == nil:
			p.failed = ""
			if !bytes.Equal(before, p.written["token"]) {
				p.log.Info("the pod's other containers have its new token")
			}
		}
	}
}

// Cause is the file of an error and the error of the operating system, without the operation.
func Cause(err error) string {
	var path *fs.PathError
	var link *os.LinkError
	switch {
	case errors.As(err, &path):
		return path.Path + ": " + path.Err.Error()
	case errors.As(err, &link):
		return link.New + ": " + link.Err.Error()
	}
	return err.Error()
}
