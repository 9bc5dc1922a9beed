// Package source holds what is served from memory of one resource: its state, hub, proofs of
// freshness, backfills and encodings. A Catalog finds it.
//
// A mirror makes a Source. Plans read it, and answers are made from it.
//
// AwaitRV waits for a resourceVersion as the API server's watch cache does (W-65, W-106). Watches
// that begin without a state do not call it. It ends in one of these ways:
//
//   - The version arrives.
//   - The context ends first.
//   - The API server says that the version does not exist (TooLargeError).
//   - The API server has the version, or does not answer whether it has it (errBehind).
//
// Invariant: a Source owns no lasting goroutine. AwaitRV requests proofs while it waits. That a
// resourceVersion is too large is the API server's word, never the proxy's guess.
//
// Why not a part of package mirror: plans and watches would depend on reflectors and on the client
// of the API server.
package source
