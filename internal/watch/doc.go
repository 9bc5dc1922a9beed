// Package watch delivers watches: initial state, live events, bookmarks, ends.
//
// A Stream is one client's watch: a plan, a cursor, a deadline and a sink. It is pulled: whatever
// delivers it pulls the next bytes when the client has taken those before, so a slow client
// costs its own place in the log and delays no other (design D10). A stream begins on the goroutine
// of its request. Past its initial events it becomes a slot of one of a few writers:
//
//	hub ──wakes──▶ group ──▶ writer ──▶ slot ──▶ port ──▶ socket
//	               (slots of one feed)   (turn)   (TLS)    one non-blocking send
//
// A writer owns its slots and is alone in sending to the sockets of HTTP/1.1 watches. On HTTP/2 a
// slot's frames go to the outbox of the connection, which the writer flushes: the frames of all its
// streams are one send.
// A writer never waits: the slot of a full socket or outbox is parked until there is room, or until
// its client has stalled.
//
// Invariant: a stream ends for exactly one EndReason, and holds no object past its initial events.
// A bookmark never overtakes an event.
//
// Why not a goroutine for each watch: 13 times the memory of an idle one over TLS, and eight times
// the processor time of a delivery (docs/design/0010-slots-and-writers.md). That deliverer is still
// here: it is the reference that the writers are tested against, and what systems without epoll
// and watches with heavy selectors use.
package watch
