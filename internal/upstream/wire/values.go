package wire

import (
	"errors"
	"fmt"
	"io"
)

// values cuts JSON values out of a body as it arrives, so that the body is never held as a whole,
// and no value is copied before it is read. It checks no more than it needs to find where a value
// ends: the caller that takes the value parses it.
//
// A json.Decoder reads each value twice before it returns it, byte by byte through a table of
// states. That would be most of the cost of a large list.
type values struct {
	in         io.Reader
	buf        []byte
	start, end int // buf[start:end] has arrived and was not taken yet
}

// errNoJSON says that a body is not JSON.
var errNoJSON = errors.New("malformed JSON")

// newValues cuts values out of a body.
func newValues(in io.Reader) *values { return &values{in: in, buf: make([]byte, Buffer)} }

// peek is the next byte that is not blank.
func (v *values) peek() (byte, error) {
	for {
		for ; v.start < v.end; v.start++ {
			if c := v.buf[v.start]; !isBlank(c) {
				return c, nil
			}
		}
		if err := v.fill(); err != nil {
			return 0, err
		}
	}
}

// expect passes the next byte that is not blank, which has to be want.
func (v *values) expect(want byte) error {
	got, err := v.peek()
	switch {
	case err != nil:
		return err
	case got != want:
		return fmt.Errorf("%w: %q instead of %q", errNoJSON, got, want)
	}
	v.start++
	return nil
}

// hasMore passes the comma in front of another element, or the bracket that closes them. isFirst
// says that no element has come yet.
func (v *values) hasMore(isFirst bool, closing byte) (bool, error) {
	c, err := v.peek()
	switch {
	case err != nil:
		return false, err
	case c == closing:
		v.start++
		return false, nil
	case isFirst:
		return true, nil
	}
	return true, v.expect(',')
}

// next is the next value, valid until another method is called.
func (v *values) next() ([]byte, error) {
	if _, err := v.peek(); err != nil {
		return nil, err
	}
	var e extent
	for size := 0; ; {
		n, ended := e.scan(v.buf[v.start+size : v.end])
		if size += n; ended {
			v.start += size
			return v.buf[v.start-size : v.start], nil
		}
		if size > maxBytes {
			return nil, ErrTooLong
		}
		if err := v.fill(); err != nil {
			return nil, err
		}
	}
}

// fill waits for more bytes, and makes room for them. The end of the body is an error: a caller
// that needs more bytes is inside a value.
func (v *values) fill() error {
	if v.start > 0 {
		v.end = copy(v.buf, v.buf[v.start:v.end])
		v.start = 0
	}
	if v.end == len(v.buf) {
		v.buf = append(v.buf, make([]byte, len(v.buf))...)
	}
	n, err := v.in.Read(v.buf[v.end:])
	v.end += n
	switch {
	case n > 0:
		return nil // the next Read returns the error again
	case err == io.EOF:
		return io.ErrUnexpectedEOF
	}
	return err
}

func isBlank(c byte) bool { return c == ' ' || c == '\t' || c == '\n' || c == '\r' }

// extent finds where a value ends whose bytes come in pieces.
type extent struct {
	depth     int
	inString  bool
	isEscaped bool // a backslash in the string came last
}

// scan returns how many bytes of b belong to the value, and whether it has ended.
func (e *extent) scan(b []byte) (int, bool) {
	for i := 0; i < len(b); i++ {
		if e.inString {
			n, ended := e.scanString(b[i:])
			i += n
			if !ended {
				return len(b), false
			}
			if e.depth == 0 {
				return i + 1, true
			}
			continue
		}
		switch c := b[i]; c {
		case '"':
			e.inString = true
		case '{', '[':
			e.depth++
		case '}', ']':
			if e.depth == 0 { // it closes the object or array around the value
				return i, true
			}
			if e.depth--; e.depth == 0 {
				return i + 1, true
			}
		case ',', ':', ' ', '\t', '\n', '\r':
			if e.depth == 0 {
				return i, true
			}
		}
	}
	return len(b), false
}

// scanString returns where in b the quote is that ends the string, or false.
func (e *extent) scanString(b []byte) (int, bool) {
	for i := 0; i < len(b); i++ {
		switch {
		case e.isEscaped:
			e.isEscaped = false
		case b[i] == '\\':
			e.isEscaped = true
		case b[i] == '"':
			e.inString = false
			return i, true
		}
	}
	return len(b), false
}
