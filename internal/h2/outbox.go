package h2

import (
	"encoding/binary"
	"errors"
	"sync"

	"golang.org/x/net/http2"
)

// outbox is the frames of a connection that wait to be sent, in the order in which they were put.
// It is an io.Writer for the framer. Guarded by Conn.mu.
//
// Handlers stop at Conn.outboxLimitLocked, and owners of kept streams at twice that: however much
// one stream of a connection has to send, the events of the others find room.
type outbox struct {
	frames  *[]byte   // nil: none
	sending bool      // what takeOutbox took is being written
	flooded bool      // the connection is about to end for it
	waiting []*Stream // that want room here, or in the connection's window
}

// Bytes in an outbox.
const (
	outboxFull  = 64 << 10 // see Conn.outboxLimitLocked
	outboxFlood = 1 << 20  // no client is owed so much unless it does not read
)

// errFlood ends a connection whose client asks for answers and does not read them.
var errFlood = errors.New("the client reads no answers to its control frames")

// outboxBuffers are the frames of outboxes that were sent: an idle connection has none.
var outboxBuffers = sync.Pool{New: func() any { b := make([]byte, 0, minFrame); return &b }}

// Write implements io.Writer.
func (o *outbox) Write(frame []byte) (int, error) {
	o.openFrames()
	*o.frames = append(*o.frames, frame...)
	return len(frame), nil
}

func (o *outbox) openFrames() {
	if o.frames == nil {
		o.frames = outboxBuffers.Get().(*[]byte)
	}
}

func (o *outbox) len() int {
	if o.frames == nil {
		return 0
	}
	return len(*o.frames)
}

// putData puts a DATA frame.
func (o *outbox) putData(id uint32, b []byte, end bool) {
	o.openFrames()
	flags := http2.Flags(0)
	if end {
		flags = http2.FlagDataEndStream
	}
	f := append(*o.frames, byte(len(b)>>16), byte(len(b)>>8), byte(len(b)), byte(http2.FrameData),
		byte(flags)) // #nosec G115 -- the bytes of a frame's length
	f = binary.BigEndian.AppendUint32(f, id)
	*o.frames = append(f, b...)
}

// checkFloodLocked is called before each frame that cannot wait for room, and ends the
// connection of a client that reads none of them.
func (c *Conn) checkFloodLocked() {
	if c.outbox.len() > c.floodLimitLocked() && !c.outbox.flooded {
		c.outbox.flooded = true
		go c.end(errFlood)
	}
}

// notifySenderLocked is called after a frame was put. It wakes send; without goroutines,
// unlockAndFlush sends what is in the outbox.
func (c *Conn) notifySenderLocked() {
	if c.wakeSender == nil {
		return
	}
	select {
	case c.wakeSender <- struct{}{}:
	default:
	}
}

// send sends what is put into the outbox, until the connection ends.
func (c *Conn) send() {
	for {
		select {
		case <-c.wakeSender:
		case <-c.ended:
			return
		}
		for frames := c.takeOutbox(); frames != nil; frames = c.takeOutbox() {
			_, err := c.net.Write(*frames)
			recycleFrames(frames)
			if err != nil {
				c.end(err)
				return
			}
		}
	}
}

// recycleFrames gives frames back that were sent.
func recycleFrames(frames *[]byte) {
	if cap(*frames) <= 4*outboxFull {
		*frames = (*frames)[:0]
		outboxBuffers.Put(frames)
	}
}

// takeOutbox takes what the outbox has, which makes room. It returns nil if there is nothing.
func (c *Conn) takeOutbox() *[]byte {
	c.mu.Lock()
	defer c.mu.Unlock() // the caller sends them
	frames := c.outbox.frames
	c.outbox.sending = frames != nil
	if frames != nil {
		c.outbox.frames = nil
		c.wakeWaitingLocked()
	}
	return frames
}
