// Package probes reads from upstream how far one resource is, what it holds, what happened before a
// mirror began, and what upstream is able to do.
//
//	                        a LIST of one item makes     a watch of ≤ 3 s on the
//	                        one API server current       same connection
//	freshness ──▶ Prober ──Begin──▶ revision, Probe ──Prove──▶ a bookmark, or the last event
//	backfill ──▶ History ──Begin──▶ revision, stream ──Watch, Next──▶ the events after a version
//
//	comparisons  ──▶ Prober.State, ReadVersions, ListFrom, ListObjects: LISTs
//	capabilities ──▶ Prober.ProbeCapabilities: a watch-list that selects nothing
//
// Both watches need the connection of their LIST: behind a load balancer, another API server may
// not have reached the revision yet, and sends no bookmark (W-211).
//
// Invariant: only an answer of upstream is evidence. Silence, and a watch that ended without a
// bookmark, prove nothing.
package probes
