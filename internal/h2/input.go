package h2

import (
	"encoding/binary"
	"fmt"
	"io"
	"sync"

	"golang.org/x/net/http2"
)

const frameHeader = 9

// input is the received bytes of a connection that are not taken yet, and the framer that reads
// them. A connection without goroutines borrows one while there is something to read. Of a frame
// that has begun it keeps the received bytes alone (Conn.partial).
type input struct {
	framer   *http2.Framer // of whole frames, from next
	next     []byte
	buffer   []byte
	from, to int // of buffer: what is not taken yet
}

// newInput makes an input that holds so many bytes at first.
func newInput(size int) *input {
	in := &input{buffer: make([]byte, size)}
	in.framer = http2.NewFramer(nil, (*inputReader)(in))
	in.framer.SetMaxReadFrameSize(minFrame)
	in.framer.AllowIllegalReads = true // the next frame may be another framer's: Conn.readFrame checks the order
	return in
}

// inputs are those that no connection has borrowed.
var inputs = sync.Pool{New: func() any { return newInput(frameHeader + minFrame) }}

// borrowInput is an input for a connection of which so much is not taken yet.
func borrowInput(partial []byte) *input {
	in := inputs.Get().(*input)
	in.from, in.to = 0, copy(in.buffer, partial)
	return in
}

// giveBack gives a borrowed input back, and returns what is not taken yet, in partial if it fits.
func (in *input) giveBack(partial []byte) []byte {
	left := in.buffer[in.from:in.to]
	if len(left) > 0 {
		partial = append(partial[:0], left...)
	} else {
		partial = nil
	}
	in.next = nil
	inputs.Put(in)
	return partial
}

// inputReader is the io.Reader of an input's framer.
type inputReader input

// Read implements io.Reader.
func (r *inputReader) Read(b []byte) (int, error) {
	if len(r.next) == 0 {
		return 0, io.EOF
	}
	n := copy(b, r.next)
	r.next = r.next[n:]
	return n, nil
}

// freeSpace is where to read more to. It has room for at least one byte, and all of the input then
// for at least size.
func (in *input) freeSpace(size int) []byte {
	if in.from > 0 {
		in.to, in.from = copy(in.buffer, in.buffer[in.from:in.to]), 0
	}
	if size = max(size, in.to+1); size > len(in.buffer) {
		in.buffer = append(make([]byte, 0, size), in.buffer[:in.to]...)[:size]
	}
	return in.buffer[in.to:]
}

// takePreface takes the client's preface, if it is whole.
func (in *input) takePreface() (taken bool, err error) {
	if in.to-in.from < len(http2.ClientPreface) {
		return false, nil
	}
	preface := string(in.buffer[in.from:][:len(http2.ClientPreface)])
	if in.from += len(preface); preface != http2.ClientPreface {
		return false, fmt.Errorf("began with %q", preface)
	}
	return true, nil
}

// frameLength is the length of the frame that comes next, or as much of it as is known. isWhole
// reports that all of it is there, or that it is too long to be read.
func (in *input) frameLength() (length int, isWhole bool) {
	b := in.buffer[in.from:in.to]
	if len(b) < frameHeader {
		return frameHeader, false
	}
	length = frameHeader + int(binary.BigEndian.Uint32(b)>>8)
	return length, len(b) >= length || length > frameHeader+minFrame
}

// isQuick reports that to act on the next frame never waits, and takes no longer for one connection
// than for another.
func (in *input) isQuick() bool {
	switch http2.FrameType(in.buffer[in.from+3]) {
	case http2.FrameWindowUpdate, http2.FramePing, http2.FrameSettings, http2.FrameRSTStream, http2.FramePriority,
		http2.FrameGoAway:
		return true
	}
	return false
}

// readFrame reads the frame that comes next, which is whole. It is valid until the next one is
// read.
func (in *input) readFrame(length int) (http2.Frame, error) {
	in.next = in.buffer[in.from:min(in.from+length, in.to)]
	in.from += len(in.next)
	return in.framer.ReadFrame()
}
