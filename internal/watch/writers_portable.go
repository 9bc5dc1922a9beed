//go:build !linux || portable

package watch

// haveWriters reports that writers deliver watches. Here each watch has a goroutine.
const haveWriters = false
