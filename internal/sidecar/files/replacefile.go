package files

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// replaceFile replaces a file atomically, with a mode that no umask restricts.
func replaceFile(name string, text []byte, mode fs.FileMode) error {
	temporary, err := os.CreateTemp(filepath.Dir(name), ".new-") // 0600
	if err != nil {
		return err
	}
	_, err = temporary.Write(text)
	if err == nil {
		err = temporary.Chmod(mode)
	}
	if closed := temporary.Close(); err == nil {
		err = closed
	}
	if err == nil {
		err = os.Rename(temporary.Name(), name)
	}
	if err != nil {
		return errors.Join(err, os.Remove(temporary.Name()))
	}
	return nil
}
