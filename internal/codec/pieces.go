package codec

import (
	"io"
	"sync"
)

// pieceSize is how much of a list is written at once (design D10a).
const pieceSize = 256 << 10

// pieces gathers what is written into pieces of exactly pieceSize, all but the last. After an error
// it writes nothing more.
type pieces struct {
	w       io.Writer
	buf     *[]byte // room for one piece
	written int64
	err     error
}

var pieceBuffers = sync.Pool{New: func() any {
	b := make([]byte, 0, pieceSize)
	return &b
}}

// newPieces makes the pieces of about size bytes. Close them.
func newPieces(w io.Writer, size int) *pieces {
	if size < pieceSize/4 {
		b := make([]byte, 0, size)
		return &pieces{w: w, buf: &b}
	}
	return &pieces{w: w, buf: pieceBuffers.Get().(*[]byte)}
}

func (p *pieces) write(b []byte) {
	for len(b) > 0 && p.err == nil {
		buf := *p.buf
		n := min(len(b), pieceSize-len(buf))
		*p.buf = append(buf, b[:n]...)
		b = b[n:]
		if len(*p.buf) == pieceSize {
			p.flush()
		}
	}
}

func (p *pieces) writeString(s string) {
	if buf := *p.buf; len(s) < pieceSize-len(buf) && p.err == nil {
		*p.buf = append(buf, s...)
		return
	}
	p.write([]byte(s))
}

func (p *pieces) flush() {
	n, err := p.w.Write(*p.buf)
	p.written, p.err = p.written+int64(n), err
	*p.buf = (*p.buf)[:0]
}

// finish writes what is left, and returns how much was written in all, or why not.
func (p *pieces) finish() (int64, error) {
	if p.err == nil && len(*p.buf) > 0 {
		p.flush()
	}
	return p.written, p.err
}

// close gives the buffer back.
func (p *pieces) close() {
	if cap(*p.buf) >= pieceSize {
		*p.buf = (*p.buf)[:0]
		pieceBuffers.Put(p.buf)
	}
}
