//go:build !race

package h2

// raceDetector says that the race detector is on.
const raceDetector = false
