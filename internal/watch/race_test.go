//go:build race

package watch

// raceDetector says that the race detector is on.
const raceDetector = true
