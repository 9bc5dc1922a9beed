package files

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Directory is a folder whose files change together, as in the kubelet's volumes. Each file is a
// link to ..data/NAME. ..data links to the folder of one version. One rename replaces ..data. One
// goroutine writes; any number of processes read.
type Directory struct{ path string }

const (
	dataLink = "..data"
	// versionPrefix begins the names of folders with one version, like the kubelet's, which have the
	// year there. So readers that skip those names skip these.
	versionPrefix = "..20"

	// Containers of the pod run as any user, and each must be able to read. Nothing outside the pod
	// sees the volume.
	folderMode fs.FileMode = 0o755
	fileMode   fs.FileMode = 0o644
)

// Write replaces the version. Names are plain and do not begin with "..", and each call has the
// same names. A new name appears after ..data has changed.
func (d Directory) Write(files map[string][]byte) error {
	fresh, err := os.MkdirTemp(d.path, versionPrefix)
	if err != nil {
		return err
	}
	if err := writeFiles(fresh, files); err != nil {
		return errors.Join(err, os.RemoveAll(fresh))
	}
	if err := d.replaceLink(dataLink, filepath.Base(fresh)); err != nil {
		return err
	}
	for name := range files {
		target := filepath.Join(dataLink, name)
		if now, err := os.Readlink(filepath.Join(d.path, name)); err == nil && now == target {
			continue
		}
		if err := d.replaceLink(name, target); err != nil {
			return err
		}
	}
	return d.removeOld(filepath.Base(fresh))
}

// replaceLink links a name to a target, by one rename.
func (d Directory) replaceLink(name, target string) error {
	temporary := filepath.Join(d.path, ".."+strings.TrimPrefix(name, "..")+"_tmp") // ..data_tmp, ..token_tmp
	if err := os.Remove(temporary); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.Symlink(target, temporary); err != nil {
		return err
	}
	return os.Rename(temporary, filepath.Join(d.path, name))
}

func writeFiles(dir string, files map[string][]byte) error {
	for name, text := range files {
		if err := replaceFile(filepath.Join(dir, name), text, fileMode); err != nil {
			return err
		}
	}
	return os.Chmod(dir, folderMode) // #nosec G302 -- see folderMode
}

// removeOld removes the previous version and those of interrupted writes.
func (d Directory) removeOld(present string) error {
	entries, err := os.ReadDir(d.path)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), versionPrefix) && e.Name() != present {
			if err := os.RemoveAll(filepath.Join(d.path, e.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}
