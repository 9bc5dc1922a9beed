package stuck

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"spillway/test/framework/controlplane"
	"spillway/test/framework/process"
)

// hangingFile is a file, reading of which can hang.
type hangingFile struct {
	path          string
	hang, release func()
}

// hangingFiles are the ways in which reading a file hangs.
var hangingFiles = map[string]func(t *testing.T, text string) hangingFile{
	"open of a FIFO without a writer": newHangingFIFO,
	"stat on a file system": func(t *testing.T, text string) hangingFile {
		return newHangingFileSystem(t, text, statHangs)
	},
	"read on a file system": func(t *testing.T, text string) hangingFile {
		return newHangingFileSystem(t, text, readHangs)
	},
}

// newHangingFIFO is a file that a FIFO without a writer replaces.
func newHangingFIFO(t *testing.T, text string) hangingFile {
	path := filepath.Join(t.TempDir(), "token")
	write := func(path string) { must(t, os.WriteFile(path, []byte(text), 0o600)) }
	write(path)
	return hangingFile{
		path: path,
		hang: func() {
			must(t, syscall.Mkfifo(path+".fifo", 0o600))
			must(t, os.Rename(path+".fifo", path))
		},
		release: func() {
			writer, err := os.OpenFile(path, os.O_RDWR, 0) // which lets readers go on to its end
			must(t, err)
			write(path + ".new")
			must(t, os.Rename(path+".new", path))
			must(t, writer.Close())
		},
	}
}

// stage is the call that hangs.
type stage int32

const (
	nothingHangs stage = iota
	statHangs
	readHangs
)

// hangingNode is the only file of a file system whose server is gone, as far as a program can tell.
// A call that hangs ends with its program.
type hangingNode struct {
	fs.Inode
	text  []byte
	hangs atomic.Int32 // a stage
}

// newHangingFileSystem mounts one, of which a call hangs.
func newHangingFileSystem(t *testing.T, text string, hangs stage) hangingFile {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root, for a mount")
	}
	if _, err := os.Stat("/dev/fuse"); err != nil {
		t.Skip("needs FUSE: ", err)
	}
	dir, node := t.TempDir(), &hangingNode{text: []byte(text)}
	root := &fs.Inode{}
	server, err := fs.Mount(dir, root, &fs.Options{
		MountOptions: fuse.MountOptions{DirectMountStrict: true},
		OnAdd: func(ctx context.Context) {
			root.AddChild("token", root.NewPersistentInode(ctx, node, fs.StableAttr{Mode: syscall.S_IFREG}), false)
		},
	})
	must(t, err)
	release := func() { node.hangs.Store(int32(nothingHangs)) }
	t.Cleanup(func() {
		release()
		must(t, server.Unmount())
	})
	return hangingFile{filepath.Join(dir, "token"), func() { node.hangs.Store(int32(hangs)) }, release}
}

// await waits while a stage hangs.
func (n *hangingNode) await(ctx context.Context, s stage) syscall.Errno {
	for stage(n.hangs.Load()) == s {
		select {
		case <-ctx.Done():
			return syscall.EINTR
		case <-time.After(10 * time.Millisecond):
		}
	}
	return fs.OK
}

// Getattr implements fs.NodeGetattrer.
func (n *hangingNode) Getattr(ctx context.Context, _ fs.FileHandle, out *fuse.AttrOut) syscall.Errno {
	out.Mode, out.Size = 0o444, uint64(len(n.text))
	return n.await(ctx, statHangs)
}

// Open implements fs.NodeOpener. The kernel caches nothing.
func (*hangingNode) Open(context.Context, uint32) (fs.FileHandle, uint32, syscall.Errno) {
	return nil, fuse.FOPEN_DIRECT_IO, fs.OK
}

// Read implements fs.NodeReader.
func (n *hangingNode) Read(ctx context.Context, _ fs.FileHandle, into []byte, offset int64) (fuse.ReadResult,
	syscall.Errno) {
	if err := n.await(ctx, readHangs); err != fs.OK {
		return nil, err
	}
	rest := n.text[min(offset, int64(len(n.text))):]
	return fuse.ReadResultData(rest[:min(len(into), len(rest))]), fs.OK
}

// A token file that hangs keeps a running proxy from nothing, and is named. It ends a start with a
// line.
func TestTokenFileHangs(t *testing.T) {
	w := newWorld(t)
	binary := process.BuildProxy(t)
	for name, newFile := range hangingFiles {
		t.Run(name, func(t *testing.T) {
			w.t = t
			token := newFile(t, w.as(self))
			kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
			must(t, w.writeKubeconfig(kubeconfig, &clientcmdapi.AuthInfo{TokenFile: token.path}))
			own := start(t, binary, "--kubeconfig="+kubeconfig, "--listen-identity=self")
			s := start(t, binary, "--kubeconfig="+kubeconfig)
			s.token = w.as(controlplane.Alice)
			events, ownEvents := s.events(), own.events()
			token.hang()
			s.namesFile(token.path)
			own.namesFile(token.path)
			object := strings.ToLower(strings.ReplaceAll(name, " ", "-"))
			w.write(object)
			if !arrives(events, object, late) || !arrives(ownEvents, object, late) {
				t.Errorf("the event is late by more than %v", late)
			}
			s.token = w.as(controlplane.Bob) // not reviewed yet
			for _, path := range []string{"/api/v1/pods", configMaps, configMaps + "?resourceVersion=0"} {
				for _, one := range []*spillway{s, own} {
					if a := one.get(one.url + path); a.code != http.StatusOK || a.took > late {
						t.Errorf("GET %s, which the token from before does for: %+v", path, a)
					}
				}
			}
			if err := own.terminates(); err != nil {
				t.Errorf("while the file hangs it ended with %v", err)
			}

			launch(t, exec.Command(binary, "--kubeconfig="+kubeconfig, "--listen=127.0.0.1:0", "--metrics-listen=",
				"--resources=configmaps", "--listen-identity=self")).endsWithALine(kubeconfig)

			token.release()
			process.Awaiting(t, "the file not to be named", func(context.Context) error {
				if a := s.get(s.metrics + "/readyz?verbose"); a.code != http.StatusOK || strings.Contains(a.body, token.path) {
					return fmt.Errorf("%d %s", a.code, a.body)
				}
				return nil
			})
			if err := s.terminates(); err != nil {
				t.Errorf("it ended with %v", err)
			}
		})
	}
}

// namesFile waits until readiness and one line of the log name a file.
func (s *spillway) namesFile(path string) {
	s.t.Helper()
	process.Awaiting(s.t, "the file to be named", func(context.Context) error {
		if a := s.get(s.metrics + "/readyz?verbose"); a.code != http.StatusOK || !strings.Contains(a.body, path) {
			return fmt.Errorf("%d %s", a.code, a.body)
		}
		if !strings.Contains(s.log.String(), path) {
			return errors.New("the log does not name it")
		}
		return nil
	})
	if n := strings.Count(s.log.String(), path); n != 1 {
		s.t.Errorf("the log names the file %d times", n)
	}
}
