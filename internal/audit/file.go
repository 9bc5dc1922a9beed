package audit

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"gopkg.in/natefinch/lumberjack.v2"
)

// FileOptions say where events are written, as kube-apiserver's flags --audit-log-* do.
type FileOptions struct {
	Path       string // "-" is standard output
	MaxSize    int    // in megabytes; 0: it grows without a limit
	MaxAge     int    // in days, of what was rotated out; 0: any
	MaxBackups int    // 0: any number
	Compress   bool
}

// missingCheckInterval is how often it is looked whether the file is still there.
const missingCheckInterval = time.Second

// Open opens what events are written to, and makes the file if there is none.
func Open(o FileOptions) (io.Writer, error) {
	if o.Path == "-" {
		return writerOnly{os.Stdout}, nil
	}
	if err := os.MkdirAll(filepath.Dir(o.Path), 0o700); err != nil {
		return nil, err
	}
	f := &file{path: o.Path, open: func() (io.WriteCloser, error) { return openFile(o.Path) }}
	if o.MaxSize > 0 {
		rotated := &lumberjack.Logger{Filename: o.Path, MaxSize: o.MaxSize, MaxAge: o.MaxAge, MaxBackups: o.MaxBackups,
			Compress: o.Compress}
		f.open = func() (io.WriteCloser, error) { return rotated, nil }
	}
	first, err := openFile(o.Path) // which says now what is wrong
	if err != nil {
		return nil, err
	}
	return f, first.Close()
}

// openFile opens a file, or a pipe that has a reader: it does not wait for one.
func openFile(path string) (io.WriteCloser, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY|syscall.O_NONBLOCK,
		0o600) // #nosec G304 -- the operator names it
	if errors.Is(err, syscall.ENXIO) {
		return nil, &fs.PathError{Op: "open", Path: path, Err: errUnread}
	}
	return f, err
}

var errUnread = errors.New("this pipe has no reader; start the reader first")

// writerOnly is not closed: others write there, too.
type writerOnly struct{ io.Writer }

// file is a file that is opened again once its path is gone: a line in a file that was deleted or
// moved is on no record.
type file struct {
	path    string
	open    func() (io.WriteCloser, error)
	current io.WriteCloser // nil: to be opened
	checked time.Time      // when it was last looked whether it is there
}

// Write implements io.Writer. Its caller writes one at a time.
func (f *file) Write(b []byte) (int, error) {
	if now := time.Now(); now.Sub(f.checked) >= missingCheckInterval {
		f.checked = now
		if _, err := os.Stat(f.path); errors.Is(err, fs.ErrNotExist) {
			_ = f.Close() // there is nothing left to lose
		}
	}
	if f.current == nil {
		opened, err := f.open()
		if err != nil {
			return 0, fmt.Errorf("opening the audit log: %w", err)
		}
		f.current = opened
	}
	return f.current.Write(b)
}

// Close implements io.Closer. A write opens it again.
func (f *file) Close() error {
	if f.current == nil {
		return nil
	}
	err := f.current.Close()
	f.current = nil
	return err
}
