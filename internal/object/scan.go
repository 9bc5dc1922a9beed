package object

import (
	"encoding/json"
	"errors"
	"fmt"
	"unicode/utf8"
	"unsafe"
)

// errSyntax is what every malformed document comes down to; Parse says where.
var errSyntax = errors.New("malformed JSON")

// maxDepth is how deep values may nest: encoding/json's own limit, so that what upstream could
// write can be read.
const maxDepth = 10000

// scanner walks over JSON without building anything. It checks no more than it needs to find its
// way: upstream's encoder made the bytes. Whatever it accepts and encoding/json accepts too, both
// understand alike (fuzzed).
type scanner struct {
	b     []byte
	i     int
	depth int
}

func (s *scanner) space() {
	for s.i < len(s.b) {
		switch s.b[s.i] {
		case ' ', '\t', '\n', '\r':
			s.i++
		default:
			return
		}
	}
}

// peek skips blanks, and is the byte that follows them; 0 at the end. It does not consume that
// byte.
func (s *scanner) peek() byte {
	s.space()
	if s.i >= len(s.b) {
		return 0
	}
	return s.b[s.i]
}

func (s *scanner) expect(c byte) error {
	if s.peek() != c {
		return errSyntax
	}
	s.i++
	return nil
}

// members walks over the members of the object that comes next. While next says true, the scanner
// is at the value of key, which the caller consumes; what goes wrong with it is put into err. (A
// callback would cost an allocation for each object that it walks over.)
type members struct {
	*scanner
	key   string // valid as long as the bytes that are scanned
	at    span   // of the key, without its quotes
	err   error
	begun bool
}

func (s *scanner) members() members { return members{scanner: s} }

func (m *members) next() bool {
	if m.err != nil {
		return false
	}
	if !m.begun {
		m.begun = true
		return m.begin()
	}
	switch m.peek() {
	case ',':
		m.i++
		return m.name()
	case '}':
		m.i++
		m.depth--
		return false
	}
	m.err = errSyntax
	return false
}

func (m *members) begin() bool {
	if m.depth++; m.depth > maxDepth {
		m.err = errSyntax
		return false
	}
	if m.err = m.expect('{'); m.err != nil {
		return false
	}
	if m.peek() == '}' {
		m.i++
		m.depth--
		return false
	}
	return m.name()
}

// name reads a member's name and passes the colon.
func (m *members) name() bool {
	m.space()
	start := m.i
	if m.key, m.err = m.str(); m.err != nil {
		return false
	}
	m.at = span{uint32(start + 1), uint32(m.i - 1)} // #nosec G115 -- objects are below 4 GiB (parser.parse)
	m.err = m.expect(':')
	m.space()
	return m.err == nil
}

// strSpan is the string that comes next, without its quotes, and whether it holds escapes.
func (s *scanner) strSpan() (sp span, escaped bool, err error) {
	if s.i >= len(s.b) || s.b[s.i] != '"' {
		return span{}, false, errSyntax
	}
	start := s.i + 1
	for i := start; i < len(s.b); i++ {
		switch c := s.b[i]; {
		case c == '"':
			s.i = i + 1
			return span{uint32(start), uint32(i)}, escaped, nil // #nosec G115 -- objects are below 4 GiB (parser.parse)
		case c == '\\':
			escaped = true
			i++
		case c < ' ':
			return span{}, false, errSyntax
		}
	}
	return span{}, false, errSyntax
}

// str is the string that comes next, decoded as encoding/json would. It is valid as long as the
// bytes that are scanned.
func (s *scanner) str() (string, error) {
	sp, escaped, err := s.strSpan()
	if err != nil {
		return "", err
	}
	if plain(s.b[sp.start:sp.end], escaped) {
		return view(s.b[sp.start:sp.end]), nil
	}
	return decode(s.b[sp.start-1 : sp.end+1])
}

// plain reports that the inside of a string is spelled as itself.
func plain(inside []byte, escaped bool) bool { return !escaped && utf8.Valid(inside) }

// decode is a string with its quotes as encoding/json understands it.
func decode(quoted []byte) (string, error) {
	var out string
	if err := json.Unmarshal(quoted, &out); err != nil {
		return "", errSyntax
	}
	return out, nil
}

// view is b as a string, which is valid as long as b is and does not change. Objects are made of
// such strings: their bytes never change, and copies of them would be a tenth of the memory.
func view(b []byte) string {
	return unsafe.String(unsafe.SliceData(b), len(b))
} // #nosec G103 -- a string for as long as its bytes are not written to

// scalar is the place of the string (without its quotes), number or boolean that comes next. It
// skips null, objects and arrays, and reports !ok. spelled says that the text there has no escapes.
func (s *scanner) scalar() (sp span, spelled, ok bool, err error) {
	switch s.peek() {
	case '"':
		sp, escaped, err := s.strSpan()
		if err != nil {
			return span{}, false, false, err
		}
		spelled := plain(s.b[sp.start:sp.end], escaped)
		if !spelled {
			_, err = decode(s.b[sp.start-1 : sp.end+1])
		}
		return sp, spelled, true, err
	case '{', '[':
		return span{}, true, false, s.skip()
	}
	start := s.i
	if err := s.skip(); err != nil {
		return span{}, true, false, err
	}
	if string(s.b[start:s.i]) == "null" {
		return span{}, true, false, nil
	}
	return s.span(start), true, true, nil
}

// span is the range from start to where the scanner is.
func (s *scanner) span(start int) span {
	return span{uint32(start), uint32(s.i)}
} // #nosec G115 -- objects are below 4 GiB (parser.parse)

// skip passes over the value that comes next. It does not recurse, so depth costs no stack.
func (s *scanner) skip() error {
	switch s.peek() {
	case '"':
		_, _, err := s.strSpan()
		return err
	case '{', '[':
		return s.skipNested()
	case '}', ']', ',', ':', 0:
		return errSyntax
	}
	return s.literal()
}

// skipNested passes over an object or an array. Most of an object's bytes are skipped here.
func (s *scanner) skipNested() error {
	open := 0
	for i := s.i; i < len(s.b); i++ {
		switch classes[s.b[i]] {
		case inert:
		case quote:
			s.i = i
			if _, _, err := s.strSpan(); err != nil {
				return err
			}
			i = s.i - 1
		case opening:
			if open++; s.depth+open > maxDepth {
				return errSyntax
			}
		case closing:
			if open--; open == 0 {
				s.i = i + 1
				return nil
			}
		default:
			return errSyntax
		}
	}
	return errSyntax
}

// classes say what a byte outside of strings does to skipNested; most of them may not be there.
var classes = func() (c [256]byte) {
	for _, b := range " \t\n\r,:0123456789abcdefghijklmnopqrstuvwxyz-+.E" {
		c[b] = inert
	}
	c['"'] = quote
	c['{'], c['['] = opening, opening
	c['}'], c[']'] = closing, closing
	return c
}()

const (
	inert byte = iota + 1
	quote
	opening
	closing
)

// literal passes over a number, true, false or null.
func (s *scanner) literal() error {
	start := s.i
	for s.i < len(s.b) {
		c := s.b[s.i]
		if c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c == '-' || c == '+' || c == '.' || c == 'E' {
			s.i++
			continue
		}
		break
	}
	if s.i == start {
		return fmt.Errorf("%w: unexpected %q", errSyntax, s.b[s.i])
	}
	return nil
}
