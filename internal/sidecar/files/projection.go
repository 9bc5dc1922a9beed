// Package files gives the other containers of a pod what their in-cluster configuration reads, so
// that it leads them to the proxy beside them: a certificate for loopback that they trust, and a
// copy of the pod's service account that follows it.
//
// The invariant: a container reads a token, a namespace and certificates that belong together, at
// any time, even while files are written; and the key that signed the proxy's certificate is
// dropped before the certificate is used.
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
// time is left, which is minutes at least.
const followInterval = 5 * time.Second

// Projection is a copy of a service account whose ca.crt vouches for the proxy, too. It stays what
// the original is.
type Projection struct {
	from      string
	to        Directory
	authority []byte
	log       *zap.Logger

	written map[string][]byte // what was last; owned by the caller of Write or Run
	failed  string            // the last error that was logged
}

// NewProjection copies from one folder to another. To the authorities in ca.crt it adds authority
// (PEM); the original ones stay, for clients that connect to the API server under another name, and
// to kubelets.
func NewProjection(from, to string, authority []byte, log *zap.Logger) *Projection {
	return &Projection{from: from, to: Directory{to}, authority: authority, log: log}
}

// Write copies what has changed. An error names the file.
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

// Run goes on copying until ctx ends. What cannot be read or written is tried again: what was there
// stays.
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

// Cause is what the operating system said of which file, without the operation.
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
