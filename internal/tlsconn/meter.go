package tlsconn

import (
	"encoding/binary"
	"errors"
)

const (
	// HandshakeBytesLimit is how many bytes a client may send until its handshake is done: two
	// ClientHellos with a session ticket, which holds the client's certificates, or one and the
	// certificates.
	HandshakeBytesLimit = 32 << 10
	// SilentBytesLimit is how many bytes a client may send after that without a byte of plaintext:
	// the longest record (RFC 8446, section 5.2), and as many as hundreds of key updates or empty
	// records have. crypto/tls returns the plaintext of each record before it reads the next, so a
	// client that sends plaintext never needs more.
	SilentBytesLimit = recordHeaderBytes + maxRecordPayloadBytes + 4<<10

	// recordHeaderBytes is the length of the header of a TLS record, whose last two bytes are the
	// length of the payload. maxRecordPayloadBytes is what TLS 1.2 allows, which allows the most.
	recordHeaderBytes     = 5
	maxRecordPayloadBytes = 16<<10 + 2<<10
	// recordsAheadBytes is how much is read at once where a record begins: an ordinary request comes
	// with one read.
	recordsAheadBytes = 1 << 10
)

// ErrHandshakeTooLong and ErrTooSilent are why a Meter ends a connection.
var (
	ErrHandshakeTooLong = errors.New("the client's TLS handshake is too long")
	ErrTooSilent        = errors.New("the client sends TLS records without a byte of plaintext")
)

// Meter follows the TLS records in what a client sends. It has two purposes.
//
// It counts the bytes that came without plaintext, see the limits above.
//
// And it lets the last read of a long record end with that record. crypto/tls reads as much as its
// buffer has room for, and keeps the buffer until the connection ends. A buffer with the beginning
// of the next record grows by the bytes that were consumed as well: to 68 kB, where one record
// needs 18 kB.
//
// The zero value is the state at the beginning of a connection. Only the goroutine that reads the
// connection uses it.
type Meter struct {
	payloadLeft   uint32 // bytes of the present record that are still to be read
	silentBytes   uint32 // that were read since the last byte of plaintext, or since the beginning
	header        [recordHeaderBytes]byte
	headerRead    uint8 // bytes in header; 0: no header has begun
	handshakeDone bool
}

// LimitRead is the part of b to read into.
func (m *Meter) LimitRead(b []byte) []byte {
	if m.payloadLeft > 0 {
		return b[:min(len(b), int(m.payloadLeft))]
	}
	return b[:min(len(b), recordsAheadBytes)]
}

// CountRead takes what was read, and returns why the connection must end; nil: it may go on.
func (m *Meter) CountRead(b []byte) error {
	m.silentBytes += uint32(len(b)) // #nosec G115 -- a read is bounded by LimitRead, and the sum below
	switch {
	case !m.handshakeDone && m.silentBytes > HandshakeBytesLimit:
		return ErrHandshakeTooLong
	case m.handshakeDone && m.silentBytes > SilentBytesLimit:
		return ErrTooSilent
	}
	m.followRecords(b)
	return nil
}

// noteHandshake notes that the handshake is done.
func (m *Meter) noteHandshake() {
	if !m.handshakeDone {
		m.handshakeDone, m.silentBytes = true, 0
	}
}

// notePlaintext notes that plaintext has come.
func (m *Meter) notePlaintext() { m.silentBytes = 0 }

func (m *Meter) followRecords(b []byte) {
	for len(b) > 0 {
		if m.payloadLeft > 0 {
			n := min(len(b), int(m.payloadLeft))
			m.payloadLeft -= uint32(n) // #nosec G115 -- bounded by payloadLeft
			b = b[n:]
			continue
		}
		n := copy(m.header[m.headerRead:], b)
		b = b[n:]
		if m.headerRead += uint8(n); m.headerRead == recordHeaderBytes { // #nosec G115 -- bounded by the header
			m.payloadLeft, m.headerRead = uint32(binary.BigEndian.Uint16(m.header[3:])), 0
		}
	}
}
