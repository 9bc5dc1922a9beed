// Package wire reads the bodies of upstream's answers as they arrive.
//
//	watch ──NewMembers, if gzip──▶ Lines ──▶ SplitEvent ──▶ ParseObject, ParseVersion, StatusError
//	LIST  ──NewMembers, if gzip──▶ ReadList: ParseObject for each item, or ReadItems
//
// Invariant: no more of a body is held than one line or one value, and none is returned that was
// cut off. The readers do not wait for more than they return: an event is not held back until the
// next one. json.Decoder and net/http's own decompression do not promise that.
package wire
