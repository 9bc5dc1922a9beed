package clientconn

import (
	"io"
	"sync"
)

// records sends the TLS records of large answers several at a time. TLS writes them one by one, 16
// KiB each, and for a connection below that is as much work as for a send of several: a deadline, a
// system call, a way through the kernel, and a client to be woken.
type records struct {
	tls  io.Writer
	conn *PacedConn // below
}

const (
	RecordBytes = 16 << 10 // of what is in it, at most
	// recordsSize is from how much on captured records are sent: three records, since a segment,
	// before the device cuts it up, is just less than 64 KiB. A fourth one would leave a bit for
	// another segment, and more than unsentBytesLimit in the kernel.
	recordsSize = 48 << 10
)

var recordBuffers = sync.Pool{New: func() any {
	b := make([]byte, 0, recordsSize+2*RecordBytes) // the last one begins below that
	return &b
}}

// RecordWriter writes to a TLS connection, and sends its records several at a time on the
// connection below.
func RecordWriter(tls io.Writer, below *PacedConn) io.Writer { return records{tls: tls, conn: below} }

// Write implements io.Writer. When it returns, everything has been sent.
func (r records) Write(b []byte) (int, error) {
	buffer := recordBuffers.Get().(*[]byte)
	defer recordBuffers.Put(buffer)
	*buffer = (*buffer)[:0]
	r.conn.capture, r.conn.captureLimit = buffer, recordsSize
	n, err := r.tls.Write(b)
	r.conn.capture, r.conn.captureLimit = nil, 0
	if err == nil && len(*buffer) > 0 {
		_, err = r.conn.Write(*buffer)
	}
	return n, err
}

// appendCaptured appends b to what is captured, and sends all of it from captureLimit on.
func (c *PacedConn) appendCaptured(b []byte) (int, error) {
	all := c.capture
	*all = append(*all, b...)
	if c.captureLimit == 0 || len(*all) < int(c.captureLimit) {
		return len(b), nil
	}
	c.capture = nil
	_, err := c.Write(*all)
	c.capture, *all = all, (*all)[:0]
	return len(b), err
}
