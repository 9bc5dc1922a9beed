package files

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Directory is a folder whose files change together, in the manner of the kubelet's volumes: each
// is a link through ..data, which leads to where all of one time are and is replaced by a rename.
// One goroutine writes; any number of processes read.
type Directory struct{ path string }

const (
	dataLink = "..data"

	// Containers of the pod run as any user, and each must be able to read, as from the kubelet's own
	// volume where it does not know their users. Nothing outside the pod sees the volume.
	folderMode fs.FileMode = 0o755
	fileMode   fs.FileMode = 0o644
)

// Write replaces all files by these.
func (d Directory) Write(files map[string][]byte) error {
	fresh, err := os.MkdirTemp(d.path, "..20")
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

// replaceLink has a name lead to a target, by one rename.
func (d Directory) replaceLink(name, target string) error {
	beside := filepath.Join(d.path, ".."+strings.TrimPrefix(name, "..")+"_tmp")
	if err := os.Remove(beside); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.Symlink(target, beside); err != nil {
		return err
	}
	return os.Rename(beside, filepath.Join(d.path, name))
}

func writeFiles(dir string, files map[string][]byte) error {
	for name, text := range files {
		if err := replaceFile(filepath.Join(dir, name), text, fileMode); err != nil {
			return err
		}
	}
	return os.Chmod(dir, folderMode) // #nosec G302 -- see folderMode
}

// removeOld removes what is of another time than the present one: of the last write, and of those
// that did not end.
func (d Directory) removeOld(present string) error {
	entries, err := os.ReadDir(d.path)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), "..20") && e.Name() != present {
			if err := os.RemoveAll(filepath.Join(d.path, e.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}

// replaceFile replaces a file atomically, with a mode that no umask restricts.
func replaceFile(name string, text []byte, mode fs.FileMode) error {
	beside, err := os.CreateTemp(filepath.Dir(name), ".new-") // 0600
	if err != nil {
		return err
	}
	_, err = beside.Write(text)
	if err == nil {
		err = beside.Chmod(mode)
	}
	if closed := beside.Close(); err == nil {
		err = closed
	}
	if err == nil {
		err = os.Rename(beside.Name(), name)
	}
	if err != nil {
		return errors.Join(err, os.Remove(beside.Name()))
	}
	return nil
}
