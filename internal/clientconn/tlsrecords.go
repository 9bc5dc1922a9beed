package clientconn

import "encoding/binary"

// recordHeader is the length of the header of a TLS record, whose last two bytes are the length of
// the rest.
const recordHeader = 5

// recordsAhead is how many bytes are read at once where a record begins: ordinary requests come
// with one read.
const recordsAhead = 1 << 10

// tlsRecords follows the TLS records in what a client sends, so that the last read of a long record
// ends with it.
//
// crypto/tls reads as much as its buffer has room for, and keeps the buffer until the connection
// ends. If the buffer has the beginning of the next record, it grows by the bytes that were
// consumed, too: up to 68 kB, of which records, of 16 KiB at most, need 18. The zero value is the
// state at the beginning of a connection.
type tlsRecords struct {
	left uint32 // bytes of the present record that are still to be read
	read uint8  // bytes of its header
	head [recordHeader]byte
}

// limit is the part of b to read into.
func (r *tlsRecords) limit(b []byte) []byte {
	if r.left > 0 {
		return b[:min(len(b), int(r.left))]
	}
	return b[:min(len(b), recordsAhead)]
}

// follow takes what was read.
func (r *tlsRecords) follow(b []byte) {
	for len(b) > 0 {
		if r.left > 0 {
			n := min(len(b), int(r.left))
			r.left -= uint32(n) // #nosec G115 -- bounded by left
			b = b[n:]
			continue
		}
		n := copy(r.head[r.read:], b)
		b = b[n:]
		if r.read += uint8(n); r.read == recordHeader { // #nosec G115 -- bounded by the header
			r.left, r.read = uint32(binary.BigEndian.Uint16(r.head[3:])), 0
		}
	}
}
