// Package h2 serves HTTP/2 connections (RFC 9113): each request by a net/http handler on a
// goroutine of its own. A stream that a handler keeps beyond its return (Response.Keep) has an
// owner that writes to it without a goroutine and without waiting.
//
// Frames are read and heads are compressed by golang.org/x/net/http2. Its server is not used,
// though this one behaves as that does where the RFC leaves a choice, because clients of a
// kube-apiserver know no other: there every stream is a goroutine, and every frame is handed from
// one to another and sent by itself, which costs more than all the rest of delivering an event.
// Here each frame goes into the connection's outbox, and what has piled up there goes out as one
// write.
//
// A connection has two forms. With goroutines, one reads and one sends. Without, an idle
// connection holds no goroutine, no timer beside its keep-alive and no buffer (NonblockingConn).
// Both parse the same input (input), fill the same outbox and pass the same tests.
//
// Invariant: nothing but a connection's own two goroutines ever waits for its socket. A handler
// waits for room in the outbox, an owner is notified when there is some, and what cannot wait
// (answers to pings, settings, resets) is bounded: the connection of a client that causes too much
// of it is cut.
package h2

import (
	"net/http"
	"net/netip"
	"time"

	"go.uber.org/zap"
)

// Options says how connections are served.
type Options struct {
	Handler http.Handler
	Log     *zap.Logger

	MaxStreams uint32 // at a time, per connection
	MaxHeader  uint32 // bytes of a request's head
	// Window is how many bytes of request body a client may send before they are read, per stream,
	// and MaxStreams times as many per connection. A connection that Bounds says has proven nothing
	// keeps the window that HTTP/2 begins with.
	Window uint32
	// Bounds are on what heads hold; nil: there are none but these. Peer is passed to its pool.
	Bounds *Bounds
	Peer   netip.Addr
	// Stall is how long a client may take nothing of an answer that its handler has left; nil: as
	// long as it likes.
	Stall func() time.Duration

	Quiet time.Duration // without a frame from the client, after which the client is sent a ping
	Pong  time.Duration // that it may take to say so
	Idle  time.Duration // without a stream, after which the connection is ended

	// Busy is called when the client's settings have come, and then whenever there is a first stream
	// or no stream any more. It must not call back. nil: no function is called.
	Busy func(hasStreams bool)
	// Proven is called once a request has proven its sender, and Leaving once GOAWAY has been sent.
	// They must not call back. nil: no function is called.
	Proven, Leaving func()
	// Ended is called when the connection has ended, and without goroutines also if it was closed
	// before Serve. nil: no function is called.
	Ended func()

	// Nonblocking is the connection without goroutines of its own: each goroutine that has frames
	// to send sends them, and bytes are read when it calls ready. nil: one goroutine reads, and one
	// sends. That is the reference implementation, for tests and where there is no epoll.
	Nonblocking NonblockingConn
}

// headerListBytes allows for ten fields beside the bytes, as net/http does.
func (o *Options) headerListBytes() uint32 { return o.MaxHeader + 10*perHeaderField }

func (o *Options) ended() {
	if o.Ended != nil {
		o.Ended()
	}
}

// lingerTimeout is how long the last answers may take after GOAWAY: a client could read slowly, and
// have more and more pings answered, for as long as it likes.
const lingerTimeout = 30 * time.Second

// Fixed limits, which are those of golang.org/x/net/http2.
const (
	helloTimeout   = 10 * time.Second // for the client's preface and settings
	goAwayTimeout  = time.Second      // between GOAWAY and the end of the connection, so that the client reads it
	tableSize      = 4096             // of heads' compression, both ways
	firstWindow    = 65535            // of a connection, and of a stream until settings say otherwise
	maxWindow      = 1<<31 - 1
	minFrame       = 16 << 10
	keptFrame      = 4 << 10  // bytes of a frame that are kept for the next one while a connection has proven nothing
	maxFrame       = 64 << 10 // that is sent, whatever the client would take
	heldBytesLimit = 4096     // bytes of an answer that are held back for more to come
	waitingFactor  = 4        // requests that wait for a handler, in MaxStreams, before the client gets ENHANCE_YOUR_CALM
	perHeaderField = 32       // what a field counts beside its bytes (RFC 9113, section 6.5.2)
)
