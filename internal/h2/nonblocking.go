package h2

import (
	"net"
	"sync/atomic"
)

// NonblockingConn is a client's connection as h2 reads and writes it without goroutines of its own.
// No method waits.
type NonblockingConn interface {
	// Open has ready called whenever bytes have arrived or the client has left. After a Flush that
	// left something it has room called as soon as more can be sent. Neither may block.
	Open(ready, room func()) error
	// ReadAgain begins the reads that follow a call of ready.
	ReadAgain()
	// Read reads what has arrived. If nothing has, the error has a method WouldBlock that returns
	// true. One goroutine at a time reads.
	Read(b []byte) (int, error)
	// Write takes all of b, for Flush to send. One goroutine at a time writes and flushes; another
	// one may read meanwhile.
	Write(b []byte) (int, error)
	// Flush sends what there is room for, and reports whether nothing is left. If something is
	// left, room is called once.
	Flush() (done bool, err error)
	// HasPending reports whether there is something for Flush to send. TLS adds to it while it reads,
	// to answer a key update.
	HasPending() bool
	// Close ends the calls of ready and room, except those that run. The connection is closed.
	Close()
}

// wouldBlock reports that an error of a NonblockingConn's Read says that nothing has come yet.
func wouldBlock(err error) bool {
	e, ok := err.(interface{ WouldBlock() bool }) //nolint:errorlint // nothing wraps it
	return ok && e.WouldBlock()
}

// readState has at most one goroutine at a time read a connection that has none of its own. The
// reader that finds the connection ended releases what the connection holds.
type readState struct{ state atomic.Int32 }

const (
	readNone  int32 = iota
	readSome        // a goroutine reads
	readAgain       // a goroutine reads, and ready was called since it began
	readEnded       // the connection has ended, and holds nothing
)

// beginRead makes the caller the reader and returns true. If another goroutine reads, that one
// reads again.
func (r *readState) beginRead() bool {
	for {
		switch {
		case r.state.CompareAndSwap(readNone, readSome):
			return true
		case r.state.CompareAndSwap(readSome, readAgain), r.state.Load() >= readAgain:
			return false
		}
	}
}

// pauseRead makes the connection one without a reader, unless ready was called since the reader
// began.
func (r *readState) pauseRead() bool {
	if r.state.CompareAndSwap(readSome, readNone) {
		return true
	}
	r.state.Store(readSome)
	return false
}

// quickReads is how often the poller's goroutine reads one connection before a goroutine is started
// for it: a client that sends much must not delay other connections.
// quickFrames is how many frames it takes of each read.
const (
	quickReads  = 4
	quickFrames = 128
)

// pumpRounds is how often a goroutine that has frames to send sends what others have put into the
// outbox meanwhile, and its own. It may be a writer's, or the poller's.
const pumpRounds = 2

// onReadable reads what has arrived. The goroutine of the poller calls it, which must not wait: it
// takes frames that change a few integers. For any other frame a goroutine is started, which ends
// as soon as there is nothing to read.
func (c *Conn) onReadable() {
	if !c.reading.beginRead() {
		return
	}
	if !c.readAvailable(quickReads) {
		go c.readAvailable(0)
	}
}

// readAvailable reads until there is nothing to read, or the connection ends. With a limit, it
// returns false after so many reads, or in front of a frame that takes longer; the caller is still
// the reader.
func (c *Conn) readAvailable(limit int) bool {
	for {
		in := borrowInput(c.partial)
		paused, err := c.readInto(in, limit)
		c.partial = in.giveBack(c.partial)
		switch {
		case err != nil:
			c.endReading(err)
			return true
		case !paused:
			return false
		case c.reading.pauseRead():
			return true
		}
	}
}

// readInto is readAvailable with an input. It returns paused when there is nothing to read.
func (c *Conn) readInto(in *input, limit int) (paused bool, err error) {
	quick := limit > 0
	c.nonblock.ReadAgain()
	for reads := 0; ; reads++ {
		if c.hasEnded() {
			return true, net.ErrClosed
		}
		slow, err := c.takeFrames(in, quick)
		if err != nil {
			return true, err
		}
		if slow || quick && reads == limit {
			return false, nil
		}
		n, err := c.nonblock.Read(in.freeSpace(0))
		in.to += n
		switch {
		case n > 0: // an error is there the next time, too
		case wouldBlock(err):
			c.sendPending()
			return true, nil
		case err != nil:
			return true, err
		}
	}
}

// hasEnded reports that the connection has ended.
func (c *Conn) hasEnded() bool {
	c.mu.Lock()
	defer c.mu.Unlock() // nothing was put
	return c.err != nil
}

// endReading ends the connection, if it has not ended yet, and releases what it holds.
func (c *Conn) endReading(err error) {
	c.finish(err)
	c.partial = nil
	c.nonblock.Close()
	c.reading.state.Store(readEnded)
	c.opts.ended()
}

// serveNonblocking reads what has arrived so far. From then on the poller calls ready.
func (c *Conn) serveNonblocking() {
	if !c.reading.beginRead() {
		return // it was closed already
	}
	if err := c.nonblock.Open(c.onReadable, c.onWritable); err != nil {
		c.endReading(err)
		return
	}
	c.mu.Lock()
	c.opened = true
	c.mu.Unlock() // startAlive flushes
	c.startAlive()
	c.readAvailable(0)
}

// unlockAndFlush unlocks mu. If the connection has no goroutines, the caller sends what is in the
// outbox, unless another goroutine is sending. A plain Unlock of mu says why it does not flush.
func (c *Conn) unlockAndFlush() {
	send := c.opened && !c.corked && c.outbox.frames != nil && !c.outbox.sending && c.err == nil
	if send {
		c.outbox.sending = true
	}
	c.mu.Unlock() // pumpOutbox flushes
	if send {
		c.pumpOutbox()
	}
}

// cork holds back what is put into the outbox while the reader takes frames that are quick to take,
// so that all answers are one send: a client may send a thousand pings at once. Only the reader
// calls it.
func (c *Conn) cork(on bool) {
	if c.nonblock == nil || c.corked == on {
		return
	}
	c.mu.Lock()
	c.corked = on
	c.unlockAndFlush()
}

// Flush sends what Offer has put into the outbox. A connection with goroutines sends by itself.
func (c *Conn) Flush() {
	c.mu.Lock()
	c.unlockAndFlush()
}

// pumpOutbox sends what is in the outbox, until there is nothing or the socket is full. Its caller
// has set outbox.sending, or goes on for one that has and found the socket full. While others put
// more and more into the outbox, another goroutine goes on.
func (c *Conn) pumpOutbox() { c.pumpFrom(c.takeOutbox()) }

func (c *Conn) pumpFrom(frames *[]byte) {
	for round := 1; frames != nil; frames, round = c.takeOutbox(), round+1 {
		if round > pumpRounds {
			go c.pumpFrom(frames)
			return
		}
		_, err := c.nonblock.Write(*frames)
		recycleFrames(frames)
		done := false
		if err == nil {
			done, err = c.nonblock.Flush()
		}
		if err != nil {
			c.end(err)
			return
		}
		if !done {
			return
		}
	}
	c.sendPending()
}

// sendPending sends what TLS has to send by itself, unless another goroutine is sending.
func (c *Conn) sendPending() {
	if !c.nonblock.HasPending() {
		return
	}
	c.mu.Lock()
	isIdle := c.opened && !c.outbox.sending && c.err == nil
	c.outbox.sending = c.outbox.sending || isIdle
	c.mu.Unlock() // resumeSending flushes
	if isIdle {
		c.resumeSending()
	}
}

// resumeSending sends what an earlier Flush has left, and then what is in the outbox.
func (c *Conn) resumeSending() {
	switch done, err := c.nonblock.Flush(); {
	case err != nil:
		c.end(err)
	case done:
		c.pumpOutbox()
	}
}

// onWritable is called when the socket has room again. TLS may have much to encrypt: the poller
// does not wait for that.
func (c *Conn) onWritable() { go c.resumeSending() }
