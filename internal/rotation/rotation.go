// Package rotation follows files that are replaced while the process runs: certificates, keys,
// tokens, kubeconfigs.
//
// Invariant: what is in use was read whole and understood. A file that cannot be read, or does not
// fit the files that it belongs to, as in the middle of a rotation, leaves in use what was read
// last; the log names it once. So does a file whose file system hangs: reading has a bound, and
// nothing waits for it twice.
//
// Files are compared by their bytes. Their times would be cheaper to read and say less: a volume of
// the kubelet's changes when a symbolic link is renamed, and tools that restore files restore their
// times.
package rotation

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"k8s.io/utils/clock"
)

// FileState is the state of one file.
type FileState struct {
	File    string
	Use     string    // what the file is for
	Since   time.Time // when the content in use was read
	Changes uint64    // how often the content in use was replaced
	Expires time.Time // when the content in use ends; zero: it does not say
	Err     error     // why the present content is not in use; nil: it is
}

// Part is one of the files that belong together.
type Part struct {
	File string
	Text []byte
}

func (p Part) equal(other Part) bool { return p.File == other.File && bytes.Equal(p.Text, other.Text) }

// Options say what a Value is made of.
type Options[T any] struct {
	// Use is what the files are for, in the singular or plural, as in "TLS certificate". It begins
	// log lines and errors.
	Use string
	// Read reads the files, always as many. Files is the usual one.
	Read func() ([]Part, error)
	// Parse makes a value of them, and says when that ends; zero: it does not say. Its errors need not
	// name the files.
	Parse func([]Part) (value T, expires time.Time, err error)
	Clock clock.PassiveClock // nil: the real one
	Log   *zap.Logger        // nil: none
}

// Files reads files by their names.
func Files(names ...string) func() ([]Part, error) {
	return func() ([]Part, error) {
		parts := make([]Part, 0, len(names))
		for _, name := range names {
			text, err := ReadFile(name)
			if err != nil {
				return nil, err
			}
			parts = append(parts, Part{File: name, Text: text})
		}
		return parts, nil
	}
}

// Value is what was made last of files that belong together. Any goroutine may use it.
type Value[T any] struct {
	opts    Options[T] // static
	current atomic.Pointer[T]
	looked  atomic.Pointer[time.Time] // when the files were looked at, by both clocks: the wall clock may be set back
	looking sync.Mutex                // held by the one look at a time; mu is taken below it

	mu      sync.Mutex // is not held while files are read
	parts   []Part     // what current was made of; looking is also held to change them
	since   time.Time  // from here on as in FileState
	changes uint64
	expires time.Time
	err     error
}

// New reads the files for the first time.
func New[T any](o Options[T]) (*Value[T], error) {
	o.Clock, o.Log = cmp.Or(o.Clock, clock.PassiveClock(clock.RealClock{})), cmp.Or(o.Log, zap.NewNop())
	v := &Value[T]{opts: o}
	if _, err := v.lookLocked(); err != nil {
		return nil, err
	}
	return v, nil
}

// Get is what is in use. It reads no file.
func (v *Value[T]) Get() T { return *v.current.Load() }

// Recent is what is in use after a look at the files, unless the last look was less than age ago.
func (v *Value[T]) Recent(age time.Duration) T {
	if v.opts.Clock.Now().Sub(*v.looked.Load()) >= age {
		v.Look()
	}
	return v.Get()
}

// Look reads the files, and reports whether another value is in use from now on. Files that cannot
// be read in time (see ReadBounded) change nothing.
func (v *Value[T]) Look() bool {
	v.looking.Lock()
	defer v.looking.Unlock()
	changed, err := v.lookLocked()
	v.mu.Lock()
	defer v.mu.Unlock()
	switch {
	case err != nil && (v.err == nil || v.err.Error() != err.Error()):
		v.opts.Log.Warn("keeping the "+v.opts.Use+" in use: what is there now cannot be used", zap.Error(err),
			zap.Time("inUseSince", v.since))
	case changed:
		v.opts.Log.Info(v.opts.Use+" reloaded", zap.Strings("files", names(v.parts)), zap.Uint64("reloads", v.changes))
	case err == nil && v.err != nil:
		v.opts.Log.Info("the "+v.opts.Use+" in use is there again", zap.Strings("files", names(v.parts)))
	}
	v.err = err
	return changed
}

// lookLocked reads the files and uses what is in them, if it is new and valid. Callers hold
// looking.
func (v *Value[T]) lookLocked() (changed bool, err error) {
	now := v.opts.Clock.Now()
	v.looked.Store(&now)
	parts, err := v.opts.Read()
	if err != nil {
		return false, fmt.Errorf("%s: %w", v.opts.Use, err)
	}
	first := v.current.Load() == nil
	if !first && slices.EqualFunc(parts, v.parts, Part.equal) {
		return false, nil
	}
	value, expires, err := v.opts.Parse(parts)
	if err != nil {
		return false, fmt.Errorf("%s %s: %w", v.opts.Use, strings.Join(names(parts), " with "), err)
	}
	v.current.Store(&value)
	v.mu.Lock()
	defer v.mu.Unlock()
	v.parts, v.since, v.expires = parts, now, expires
	if !first {
		v.changes++
	}
	return !first, nil
}

// States are those of the files at the last look.
func (v *Value[T]) States() []FileState {
	v.mu.Lock()
	defer v.mu.Unlock()
	states := make([]FileState, 0, len(v.parts))
	for _, name := range names(v.parts) {
		states = append(states, FileState{
			File: name, Use: v.opts.Use, Since: v.since, Changes: v.changes, Expires: v.expires, Err: v.err,
		})
	}
	return states
}

// names are the names of the files, each once.
func names(parts []Part) []string {
	var all []string
	for _, p := range parts {
		if !slices.Contains(all, p.File) {
			all = append(all, p.File)
		}
	}
	return all
}
