package wire

import (
	"bufio"
	"errors"
	"fmt"
	"io"
)

const (
	// Buffer is how many bytes are read at once. It holds the lines of most events, so that they
	// are scanned where they arrived.
	Buffer = 64 << 10
	// keptLine is how much memory for longer lines is kept for the next one.
	keptLine = 1 << 20
	// maxBytes is a line that no apiserver sends: etcd takes 1.5 MiB by default, and gRPC no more
	// than 2 GiB whatever one sets. It is there so that something else than an apiserver cannot
	// fill the memory.
	maxBytes = 256 << 20
)

// ErrTooLong says that a line or a value is larger than any that an apiserver sends.
var ErrTooLong = fmt.Errorf("a line of more than %d MiB", maxBytes>>20)

// Lines reads a watch body line by line: upstream ends each event with a line feed and writes none
// inside (W-130).
type Lines struct {
	in   *bufio.Reader
	long []byte // a line that is longer than the read buffer
}

// NewLines reads the lines of a body.
func NewLines(r io.Reader) *Lines { return &Lines{in: bufio.NewReaderSize(r, Buffer)} }

// Next is the next line without its line feed, valid until the next call. A line that was cut off
// is never returned: the watch starts again from the version before it.
func (l *Lines) Next() ([]byte, error) {
	part, err := l.in.ReadSlice('\n')
	if err == nil {
		return part[:len(part)-1], nil
	}
	if cap(l.long) > keptLine {
		l.long = nil
	}
	l.long = l.long[:0]
	for {
		l.long = append(l.long, part...)
		switch {
		case err == nil:
			return l.long[:len(l.long)-1], nil
		case !errors.Is(err, bufio.ErrBufferFull):
			if err == io.EOF && len(l.long) > 0 {
				err = io.ErrUnexpectedEOF
			}
			return nil, err
		case len(l.long) > maxBytes:
			return nil, ErrTooLong
		}
		part, err = l.in.ReadSlice('\n')
	}
}
