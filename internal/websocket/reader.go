package websocket

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
)

// ErrClosed says that the client closed the WebSocket, or its half of the connection.
var ErrClosed = errors.New("the client closed the WebSocket")

// ErrUnmasked says that a client sent a frame without a mask (RFC 6455, 5.1).
var ErrUnmasked = errors.New("the client sent a frame that is not masked")

// CloseFrames are the frames that answer an error of Reader.Ping.
func CloseFrames(err error) string {
	if errors.Is(err, ErrUnmasked) {
		return closeProtocolError + CloseNormal
	}
	return CloseNormal
}

const (
	// readBytes is how much of what a client sends is held.
	readBytes = 512
	// messageBytesLimit is how long a frame of a message may be. It is the limit of
	// golang.org/x/net/websocket, which holds the frame; here it is skipped (W-123).
	messageBytesLimit = 32 << 20
)

// Reader reads what the client of a watch sends. Of that only pings and the close frame matter.
type Reader struct {
	in      *bufio.Reader
	payload [pingBytesLimit]byte
}

// NewReader reads from r.
func NewReader(r io.Reader) *Reader { return &Reader{in: bufio.NewReaderSize(r, readBytes)} }

// Ping returns what is to be echoed of the next ping, valid until the next call. An error is the
// end: ErrClosed, ErrUnmasked, or what the connection says.
//
// All else is skipped. Opcodes, reserved bits and fragments that RFC 6455 forbids are no reason to
// end, because they are none for kube-apiserver (W-123).
func (r *Reader) Ping() ([]byte, error) {
	for {
		op, size, mask, err := r.head()
		if err != nil {
			return nil, err
		}
		switch {
		case op == closing, op != ping && op != pong && size > messageBytesLimit:
			return nil, ErrClosed
		case op == ping:
			return r.echo(size, mask)
		}
		if err := r.skip(size); err != nil {
			return nil, err
		}
	}
}

// head reads the head of a frame.
func (r *Reader) head() (op Opcode, size uint64, mask [4]byte, err error) {
	var head [2]byte
	if err := r.read(head[:]); err != nil {
		return 0, 0, mask, err
	}
	op = Opcode(head[0] & 0xf)
	switch length := head[1] &^ masked; length {
	case 126:
		var more [2]byte
		err = r.read(more[:])
		size = uint64(binary.BigEndian.Uint16(more[:]))
	case 127:
		var more [8]byte
		err = r.read(more[:])
		size = binary.BigEndian.Uint64(more[:]) & math.MaxInt64 // the first bit is ignored there, too
	default:
		size = uint64(length)
	}
	switch {
	case err != nil:
		return 0, 0, mask, err
	case head[1]&masked == 0:
		return 0, 0, mask, ErrUnmasked
	}
	return op, size, mask, r.read(mask[:])
}

// echo reads a ping. What there is of one that the end of the connection cuts short is echoed, too:
// the client may have closed its half alone.
func (r *Reader) echo(size uint64, mask [4]byte) ([]byte, error) {
	payload := r.payload[:min(size, pingBytesLimit)]
	n, err := io.ReadFull(r.in, payload)
	for i := range payload[:n] {
		payload[i] ^= mask[i%len(mask)]
	}
	if err == nil {
		_, err = io.CopyN(io.Discard, r.in, int64(size)-int64(n)) // #nosec G115 -- head clears the first bit
	}
	if err = ended(err); err != nil && !errors.Is(err, ErrClosed) {
		return nil, err
	}
	return payload[:n], nil
}

func (r *Reader) read(b []byte) error {
	_, err := io.ReadFull(r.in, b)
	return ended(err)
}

func (r *Reader) skip(size uint64) error {
	_, err := io.CopyN(io.Discard, r.in, int64(size)) // #nosec G115 -- head clears the first bit
	return ended(err)
}

// ended is the error of a connection. Its end, in the middle of a frame or not, closes the
// WebSocket.
func ended(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return ErrClosed
	}
	return fmt.Errorf("reading from a WebSocket: %w", err)
}
