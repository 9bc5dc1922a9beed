// Package source holds what is served from memory of one resource: its state, hub, proofs of
// freshness, backfills and encodings. A Catalog finds it.
//
// A mirror makes a Source, plans read it, answers are made from it. AwaitRV waits for a
// resourceVersion as the API server's watch cache does (W-65, W-106). The version arrives, or the
// API server says that it does not exist (TooLargeError), or it is unknown why it does not arrive.
//
// Invariant: a Source starts nothing. That a resourceVersion is too large is the API server's word,
// never the proxy's guess.
//
// Why not a part of package mirror: plans and watches would depend on reflectors and on client-go.
package source
