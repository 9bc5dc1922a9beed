package websocket

import (
	"encoding/binary"
	"math"
)

// Opcode says what a frame is.
type Opcode byte

// The opcodes of RFC 6455.
const (
	Continuation Opcode = 0x0
	Text         Opcode = 0x1
	Binary       Opcode = 0x2
	closing      Opcode = 0x8
	ping         Opcode = 0x9
	pong         Opcode = 0xa
)

const (
	final  = 0x80 // of the first byte: no other frame continues the message
	masked = 0x80 // of the second byte

	// HeadBytesLimit is how long the head of an unmasked frame is at most.
	HeadBytesLimit = 10

	// pingBytesLimit is how much of a ping kube-apiserver echoes (W-122). RFC 6455 allows no more in
	// one.
	pingBytesLimit = 125
)

// Close frames that kube-apiserver sends (W-120).
const (
	// CloseNormal ends every watch, and answers every close frame, with the code 1000.
	CloseNormal = "\x88\x02\x03\xe8"
	// closeProtocolError comes before CloseNormal where a frame is not masked: 1002.
	closeProtocolError = "\x88\x02\x03\xea"
)

// AppendHead appends the head of an unmasked frame that is a whole message of so many bytes.
func AppendHead(dst []byte, op Opcode, size int) []byte {
	dst = append(dst, final|byte(op))
	switch {
	case size <= 125:
		return append(dst, byte(size)) // #nosec G115 -- checked above
	case size <= math.MaxUint16:
		return binary.BigEndian.AppendUint16(append(dst, 126), uint16(size)) // #nosec G115 -- checked above
	default:
		return binary.BigEndian.AppendUint64(append(dst, 127), uint64(size)) // #nosec G115 -- a size is not negative
	}
}

// AppendPong appends the answer to a ping.
func AppendPong(dst, payload []byte) []byte {
	return append(AppendHead(dst, pong, len(payload)), payload...)
}
