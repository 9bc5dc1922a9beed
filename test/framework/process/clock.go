package process

import (
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Clock is the wall clock of programs that were built with SettableClock. It is the machine's until
// it is set; what they measure time with that passes is as steady as ever. Programs that start
// later find it as it is.
type Clock struct{ file *os.File }

// clockFile is the environment variable (without the prefix of settings, which the proxy checks)
// that names such a program's clock: a file of eight bytes, which say how many seconds it is ahead.
const clockFile = "TEST_CLOCK"

// NewClock is a clock that is right.
func NewClock(t *testing.T) *Clock {
	t.Helper()
	file, err := os.Create(filepath.Join(t.TempDir(), "clock"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = file.Close() })
	c := &Clock{file}
	if err := c.Set(0); err != nil {
		t.Fatal(err)
	}
	return c
}

// Set makes the clock jump to be this far ahead of the machine's, or behind it, in whole seconds.
func (c *Clock) Set(ahead time.Duration) error {
	_, err := c.file.WriteAt(binary.NativeEndian.AppendUint64(nil, uint64(ahead/time.Second)), 0)
	return err
}

// Variable is what a program must have in its environment to go by the clock.
func (c *Clock) Variable() string { return clockFile + "=" + c.file.Name() }

// SettableClock is Go's own library, changed so that a program has a Clock: a program without libc
// is out of reach of what is preloaded, and the kernel knows one wall clock for all.
func SettableClock(t *testing.T) []Fault {
	t.Helper()
	const reading = "func Now() Time {\n	sec, nsec, mono := runtimeNow()\n"
	return []Fault{
		{File: library(t, "time/time.go"), Old: reading, New: reading + "	sec += ahead.Load()\n"},
		{File: library(t, "time/ahead.go"), New: aheadFile},
	}
}

// library is the path of a file of Go's library.
func library(t *testing.T, file string) string {
	t.Helper()
	root, err := exec.CommandContext(t.Context(), "go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(strings.TrimSpace(string(root)), "src", filepath.FromSlash(file))
}

const aheadFile = `package time

import (
	"sync/atomic"
	"syscall"
	"unsafe"
)

// ahead is by how many seconds the wall clock is ahead, in memory that somebody else writes.
var ahead = func() *atomic.Int64 {
	path, ok := syscall.Getenv("` + clockFile + `")
	if !ok {
		return new(atomic.Int64)
	}
	fd, err := syscall.Open(path, syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		panic(path + ": " + err.Error())
	}
	defer syscall.Close(fd)
	page, err := syscall.Mmap(fd, 0, 8, syscall.PROT_READ, syscall.MAP_SHARED)
	if err != nil {
		panic(path + ": " + err.Error())
	}
	return (*atomic.Int64)(unsafe.Pointer(unsafe.SliceData(page)))
}()
`
