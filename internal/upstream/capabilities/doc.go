// Package capabilities joins what upstream's answers show of what it can do.
//
// During an upgrade each answer may be of another API server, behind one address. Example: 1.36
// does not compress watch-lists, 1.37 does.
//
//	10:00  1.36 and 1.37 answer in turn ──▶ "v1.36.3 to v1.37.1", watch_list_compression absent
//	10:05  the last 1.36 answers
//	10:15  ten minutes without it ─────────▶ "v1.37.1", watch_list_compression present
//
// Invariant: a capability is concluded from an answer that shows or excludes it, never from
// silence.
package capabilities
