package h2

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"go.uber.org/zap"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// Conn is one client's connection.
type Conn struct {
	// Static after construction.
	opts       Options
	net        net.Conn
	secure     TLSConn // nil: the connection has no TLS
	remote     string
	framer     *http2.Framer   // writes into the outbox, under mu
	nonblock   NonblockingConn // nil: the connection has goroutines
	wakeSender chan struct{}   // rings when the outbox has something; nil without goroutines
	ended      chan struct{}   // closed when the connection has ended; nil without goroutines

	reading readState

	// The reader's.
	input       *input // nil: it is borrowed while there is something to read
	partial     []byte // of a frame, while no input is borrowed
	longInput   bool   // input holds more than keptFrame bytes
	hasPreface  bool   // of the client
	hasSettings bool   // of the client
	decoder     *hpack.Decoder
	incoming    *block // the head that is on its way in; nil: none is
	headsLost   bool   // heads cannot be decoded any more
	closeErr    error  // why what still comes is ignored; nil: it is not

	mu           sync.Mutex
	err          error // why the connection has ended
	opened       bool  // nonblock is open
	corked       bool  // see cork; set by the reader alone
	streams      map[uint32]*Stream
	lastStreamID uint32 // the greatest id of a stream so far
	unacked      int    // settings of ours that the client has yet to acknowledge
	goAwaySent   bool   // GOAWAY has been sent
	goAwayCode   http2.ErrCode
	closing      *time.Timer // nil: not yet
	handlers     handlers
	ledger       memoryLedger
	remainders   remainders
	outbox       outbox
	inflow       inflow
	encoder      *hpack.Encoder
	encoded      bytes.Buffer // what the encoder writes to
	keepalive    keepalive

	// As the client allows.
	window        int64 // bytes that may be sent on the connection
	initialWindow int32 // bytes that may be sent on a new stream
	maxFrame      int   // bytes of a frame
}

// errGone says that the client ended the connection, and ErrReset that it reset the stream.
var (
	errGone  = errors.New("the client has closed the connection")
	ErrReset = errors.New("the client has reset the stream")
)

// New makes a connection of one on which the client has chosen HTTP/2.
func New(c net.Conn, opts Options) *Conn {
	h := &Conn{
		opts: opts, net: c, remote: c.RemoteAddr().String(), nonblock: opts.Nonblocking,
		streams: map[uint32]*Stream{},
		window:  firstWindow, initialWindow: firstWindow, maxFrame: minFrame, inflow: inflow{left: firstWindow},
	}
	if h.nonblock == nil {
		h.wakeSender, h.ended = make(chan struct{}, 1), make(chan struct{})
	}
	h.secure, _ = c.(TLSConn)
	h.framer = http2.NewFramer(&h.outbox, nil)
	h.decoder = hpack.NewDecoder(tableSize, func(hpack.HeaderField) {})
	h.ledger = memoryLedger{bounds: opts.Bounds, peer: opts.Peer, freed: make(chan struct{}, 1)}
	h.encoder = hpack.NewEncoder(&h.encoded)
	h.encoder.SetMaxDynamicTableSizeLimit(0) // a table costs more memory than it saves bytes of few answers
	h.sendSettings()                         // before GoAway can be called
	return h
}

// TLSConn is what crypto/tls and wrappers of it know of a connection.
type TLSConn interface{ ConnectionState() tls.ConnectionState }

// tlsState is made again each time: kept, it would be a tenth of what an idle connection takes.
// nil: the connection has no TLS.
func (c *Conn) tlsState() *tls.ConnectionState {
	if c.secure == nil {
		return nil
	}
	state := c.secure.ConnectionState()
	return &state
}

// NetConn is the connection below.
func (c *Conn) NetConn() net.Conn { return c.net }

// Serve serves the connection. With goroutines it returns after the end of the connection, without
// them as soon as there is nothing to read.
func (c *Conn) Serve() {
	if c.nonblock != nil {
		c.serveNonblocking()
		return
	}
	var sender sync.WaitGroup
	sender.Go(c.send)
	c.startAlive()
	c.finish(c.read())
	sender.Wait()
	c.opts.ended()
}

func (c *Conn) startAlive() {
	c.mu.Lock()
	defer c.unlockAndFlush()
	c.keepalive.start(c)
}

// finish ends the connection after its last read, which failed.
func (c *Conn) finish(err error) {
	c.dropHead()
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, net.ErrClosed):
		err = errGone
	case c.closeErr != nil:
		err = c.closeErr
	}
	if err != nil && !errors.Is(err, errGone) {
		c.opts.Log.Debug("ending an HTTP/2 connection", zap.String("client", c.remote), zap.Error(err))
	}
	c.end(err)
}

// smallInput is how many bytes a goroutine that waits for a client reads at once.
const smallInput = 1 << 10

// read takes what the client sends, until the client sends no more or what cannot be understood.
func (c *Conn) read() error {
	c.input = newInput(smallInput)
	for {
		length, _ := c.input.frameLength()
		n, err := c.net.Read(c.input.freeSpace(length))
		c.input.to += n
		if n == 0 && err != nil {
			return err
		}
		if _, err := c.takeFrames(c.input, false); err != nil {
			return err
		}
		c.releaseLongInput()
	}
}

// releaseLongInput lets go of the bytes of a long frame after its head has come to its end. A
// client whose credentials are verified may send more of them.
func (c *Conn) releaseLongInput() {
	if !c.longInput || c.incoming != nil {
		return
	}
	c.mu.Lock()
	defer c.unlockAndFlush()
	if c.isUnprovenLocked() {
		left := c.input.buffer[c.input.from:c.input.to]
		c.input, c.longInput = newInput(max(smallInput, len(left))), false
		c.input.to = copy(c.input.buffer, left)
	}
}

// refuseStream resets a stream for an error of the client's.
func (c *Conn) refuseStream(e http2.StreamError) {
	c.mu.Lock()
	defer c.unlockAndFlush()
	if s := c.streams[e.StreamID]; s != nil {
		s.resetLocked(e.Code, fmt.Errorf("stream error: %w", e))
		return
	}
	if c.isIdleStreamLocked(e.StreamID) && e.StreamID%2 == 1 && !c.goAwaySent {
		c.lastStreamID = e.StreamID // it was opened, and refused
	}
	c.checkFloodLocked()
	_ = c.framer.WriteRSTStream(e.StreamID, e.Code)
	c.notifySenderLocked()
}

// Close ends the connection and its streams at once.
func (c *Conn) Close() { c.end(net.ErrClosed) }

// end ends the connection and its streams. The first error counts.
func (c *Conn) end(err error) {
	c.mu.Lock()
	first := c.err == nil
	if first {
		c.err = err
		if c.ended != nil {
			close(c.ended)
		}
		for _, s := range c.streams {
			s.closeLocked(err)
		}
		c.keepalive.stop()
		c.remainders.stop()
		if c.closing != nil {
			c.closing.Stop()
		}
	}
	c.unlockAndFlush()
	_ = c.net.Close()
	if first && c.nonblock != nil {
		c.onReadable() // the reader lets go of the rest
	}
}
