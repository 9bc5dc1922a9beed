package wire

import (
	"errors"
	"fmt"
	"io"
)

// values cuts JSON values out of a body as it arrives, so that neither its text is ever held as a
// whole nor a value copied before it is known what to keep of it. It checks no more than it needs
// to find where a value ends: the caller that takes the value reads it. (A json.Decoder reads each
// value twice before it hands it out, byte by byte through a table of states, which is most of what
// a large list costs.)
type values struct {
	in         io.Reader
	buf        []byte
	start, end int // what has arrived and was not taken is buf[start:end]
}

// errNoJSON says that a body is not JSON.
var errNoJSON = errors.New("malformed JSON")

// newValues cuts values out of a body.
func newValues(in io.Reader) *values { return &values{in: in, buf: make([]byte, Buffer)} }

// peek is the next byte that is not blank.
func (v *values) peek() (byte, error) {
	for {
		for ; v.start < v.end; v.start++ {
			if c := v.buf[v.start]; !blank(c) {
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

// more passes the comma before another element, or what closes the list of them. first says that
// none has been there yet.
func (v *values) more(first bool, closing byte) (bool, error) {
	c, err := v.peek()
	switch {
	case err != nil:
		return false, err
	case c == closing:
		v.start++
		return false, nil
	case first:
		return true, nil
	}
	return true, v.expect(',')
}

// next is the value that comes next, valid until the next call of anything.
func (v *values) next() ([]byte, error) {
	if _, err := v.peek(); err != nil {
		return nil, err
	}
	var e extent
	for seen := 0; ; {
		n, ended := e.scan(v.buf[v.start+seen : v.end])
		if seen += n; ended {
			v.start += seen
			return v.buf[v.start-seen : v.start], nil
		}
		if seen > maxBytes {
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
		return nil // an error will come again
	case err == io.EOF:
		return io.ErrUnexpectedEOF
	}
	return err
}

func blank(c byte) bool { return c == ' ' || c == '\t' || c == '\n' || c == '\r' }

// extent finds where a value ends whose bytes come in pieces.
type extent struct {
	depth           int
	inside, escaped bool // of a string; after a backslash in one
}

// scan returns how many bytes of b belong to the value, and whether it has ended.
func (e *extent) scan(b []byte) (int, bool) {
	for i := 0; i < len(b); i++ {
		if e.inside {
			n, ended := e.string(b[i:])
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
			e.inside = true
		case '{', '[':
			e.depth++
		case '}', ']':
			if e.depth == 0 { // of what the value stands in
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

// string returns where in b the quote is that ends the string, or false.
func (e *extent) string(b []byte) (int, bool) {
	for i := 0; i < len(b); i++ {
		switch {
		case e.escaped:
			e.escaped = false
		case b[i] == '\\':
			e.escaped = true
		case b[i] == '"':
			e.inside = false
			return i, true
		}
	}
	return len(b), false
}
