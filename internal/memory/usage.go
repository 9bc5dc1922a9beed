package memory

import "runtime/metrics"

// Usage is what Go uses at a moment.
type Usage struct {
	// InUse is what a garbage collection would not free, as far as the last one knows, and what Go
	// needs around it: stacks, its own tables, and what is lost between objects. What is garbage, or
	// free, counts for nothing: how much there is of it is the collector's choice.
	InUse int64
	// Cycles is how many collections there were. What has been given up is in use until the next one.
	Cycles uint64
}

// samples are what Go tells of itself, in the order of these constants.
const (
	sampleTotal = iota
	sampleReleased
	sampleFree
	sampleObjects
	sampleLive
	sampleCycles
	sampleCount
)

// Read reads what is in use.
func Read() Usage {
	var samples [sampleCount]metrics.Sample
	for i, name := range [sampleCount]string{
		"/memory/classes/total:bytes", "/memory/classes/heap/released:bytes", "/memory/classes/heap/free:bytes",
		"/memory/classes/heap/objects:bytes",
		"/gc/heap/live:bytes", "/gc/cycles/total:gc-cycles",
	} {
		samples[i].Name = name
	}
	metrics.Read(samples[:])
	of := func(i int) int64 { return int64(samples[i].Value.Uint64()) } // #nosec G115 -- bytes of this process
	garbage := max(of(sampleObjects)-of(sampleLive), 0)
	return Usage{
		InUse:  max(of(sampleTotal)-of(sampleReleased)-of(sampleFree)-garbage, 0),
		Cycles: samples[sampleCycles].Value.Uint64(),
	}
}
