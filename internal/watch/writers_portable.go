//go:build !linux || portable

package watch

// writersSupported reports that this build has writers. In this one each stream has a goroutine.
const writersSupported = false
