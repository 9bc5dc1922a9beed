// Package upstream is the client of the API server under the proxy's own credentials, and the
// Reflector, which mirrors one resource into a Sink until it is stopped.
//
//	Reflector.Run ──▶ loop: a complete state, then watches that continue it
//	   │                │ watchList or list ──▶ Sink.Replace
//	   │                │ follow: stream.next ──▶ Sink.Add, Update, Delete, Bookmark
//	   │                │ the watch ends ──▶ open: the next one, from the last version
//	   ▼                ▼ that version is gone, or an answer makes no sense ──▶ a complete state
//	Client.Get ──▶ transport            the body ──▶ wire
//
// While upstream does not answer, one recoveryProbe finds out for all Reflectors when it serves
// again.
//
// Packages that build on this one send upstream other requests: discovery reads which resources
// there are, and probes how far a resource is and what it holds.
//
// Invariant: the Sink receives every change of its resource exactly once and in upstream's order,
// from one goroutine, or it receives the complete state again. Whatever goes wrong in between (an
// answer that makes no sense, a Sink that failed) ends in a Replace, never in a gap that stays
// unknown.
package upstream
