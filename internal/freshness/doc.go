// Package freshness proves that the cache of a resource is not older than the moment of a request
// (design D7).
//
// A LIST without a resourceVersion must show every write that was acknowledged before it. Example:
// a client writes at 27, and then lists. The mirror has delivered up to 25. It may lack the write
// at 27, or the write was to another resource. So the mirror's state is served once it is proven to
// be that of 27, and otherwise upstream answers.
//
//	request ──join──▶ flight: waits to query R
//	                    │ upstream is at R = 27 (Upstream.Begin)
//	                    ▼
//	                  through R by the mirror's own stream?  ──yes──▶ proven
//	                    │ no event for 25 ms
//	                    ▼
//	                  checks, each for all flights that wait
//	                    ├─ a bookmark at R or later (Proof.Prove) ──▶ progress ──▶ proven
//	                    └─ the same objects as upstream's, at most 500 (Upstream.State) ──▶ proven
//	                    │ after 3 s; later if a watch for a bookmark has not ended by then
//	                    ▼
//	                  ErrNotProven: upstream answers
//
// A flight queries R once. A request that arrives after its query joins the next flight, so at most
// one query is under way and one waits, however many requests arrive.
//
// Invariant: what is returned as proven holds everything that was acknowledged before the request
// joined its flight. What upstream did not say in time proves nothing.
package freshness
