// Package websocket is the server's side of RFC 6455 as kube-apiserver has it for watches: the
// handshake, the headers of frames, and a reader of what the client sends.
//
//	HandshakeOf ──▶ Answer ──▶ AppendHead, a frame for each watch event ──▶ CloseNormal
//	                                AppendPong ◀── Reader: pings; the rest is skipped
//
// kube-apiserver uses golang.org/x/net/websocket. A client of ours sees the same bytes, also where
// that package departs from the RFC (W-119 to W-123).
//
// Invariant: a Reader holds a fixed number of bytes, whatever the client sends.
//
// Why not that package: it keeps two buffers of 4 KiB for each connection, makes a new frame for
// each client, and reads messages of up to 32 MiB into memory. Here the head of a frame is made
// with the watch event, once for all clients of a feed.
package websocket
