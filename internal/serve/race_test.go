//go:build race

package serve

// raceDetector says that the race detector is on.
const raceDetector = true
