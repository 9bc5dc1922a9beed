package clientconn

import (
	"io"
	"slices"
	"sync"
)

const (
	RecordBytes = 16 << 10 // of what is in it, at most
	// sealBytes is how much plaintext RecordWriter.Write seals and sends at a time: three records,
	// because a segment, before the device cuts it up, is just less than 64 KiB. A fourth one would
	// leave a bit for another segment, and more than unsentBytesLimit in the kernel.
	sealBytes = 3 * RecordBytes
	// sealOverheadBytes is what the records of sealBytes add to it, at most.
	sealOverheadBytes = 1 << 10
)

// SealedRecords are TLS records that are not sent yet. They are made for one connection, and are
// sent on it as they are and in their order.
type SealedRecords []byte

var sealedBuffers = sync.Pool{New: func() any {
	r := make(SealedRecords, 0, sealBytes+sealOverheadBytes)
	return &r
}}

// RecordWriter makes TLS records apart from sending them. TLS sends each by itself, 16 KiB, and for
// a connection below that is as much work as for a send of several: a deadline, a system call, a
// way through the kernel, and a client to be woken.
type RecordWriter struct {
	tls  io.Writer
	conn *PacedConn
}

// NewRecordWriter makes a RecordWriter of a TLS connection, or a buffer above it, and the
// connection below.
func NewRecordWriter(tls io.Writer, below *PacedConn) RecordWriter {
	return RecordWriter{tls: tls, conn: below}
}

// Seal replaces what is in r by the records of b. The caller sends them.
func (w RecordWriter) Seal(r *SealedRecords, b []byte) error {
	*r = (*r)[:0]
	w.conn.sealed = r
	_, err := w.tls.Write(b)
	w.conn.sealed = nil
	return err
}

// Write implements io.Writer. It sends records several at a time. When it returns, everything has
// been sent.
func (w RecordWriter) Write(b []byte) (int, error) {
	r := sealedBuffers.Get().(*SealedRecords)
	defer sealedBuffers.Put(r)
	written := 0
	for piece := range slices.Chunk(b, sealBytes) {
		err := w.Seal(r, piece)
		if err == nil && len(*r) > 0 {
			_, err = w.conn.send(*r)
		}
		if err != nil {
			return written, err
		}
		written += len(piece)
	}
	return written, nil
}
