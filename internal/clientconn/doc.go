// Package clientconn keeps the connections of clients: how many there may be, how long a client may
// stall, and what a slow one may keep from being freed.
//
// PacedConn wraps an accepted socket below TLS. A write waits for the client as long as the client
// makes progress; a client that takes nothing for the stall timeout is evicted by a reset. While
// memory is short, EvictionPolicy shortens that time and ends answers that keep an old state alive
// for clients that take little of it. PacedWriter is the same for one stream of an HTTP/2
// connection. Connections limits their number: a new one takes the place of the one that is worth
// least. Poller reports that a client left, or that a full socket has room, for connections that no
// goroutine reads or writes. CPU permits keep large answers from taking every processor.
//
// Invariant: a connection is counted from its accept to its end, once. A client that takes bytes (a
// piece of 16 KiB within the stall timeout on HTTP/2) is evicted in two cases only: while memory is
// short (EvictionPolicy.EndSlow), and, if it takes little of a large answer, while another large
// answer waits for room (EvictionPolicy.EndCrowded).
//
// Why below TLS: a TLS connection cannot go on after a write that timed out half-way; a socket can.
// Why not a goroutine for each connection that reads ahead: it costs a stack for each idle watch,
// and takes bytes that belong to the next request.
package clientconn
