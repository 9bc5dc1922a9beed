package object

import (
	"encoding/json"
	"errors"
	"fmt"
)

// errSyntax is what every malformed document comes down to; Parse says where.
var errSyntax = errors.New("malformed JSON")

// maxDepth is how deep values may nest: encoding/json's own limit, so that what upstream could write can be read.
const maxDepth = 10000

// scanner walks over JSON without building anything. It checks no more than it needs to find its way: upstream's encoder
// made the bytes. Whatever it accepts and encoding/json accepts too, both understand alike (fuzzed).
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

// peek is the next byte that is not blank, 0 at the end.
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

// members calls f for each member of the object that comes next, with the scanner at the member's value, which f consumes.
func (s *scanner) members(f func(key string) error) error {
	if s.depth++; s.depth > maxDepth {
		return errSyntax
	}
	defer func() { s.depth-- }()
	if err := s.expect('{'); err != nil {
		return err
	}
	if s.peek() == '}' {
		s.i++
		return nil
	}
	for {
		s.space()
		key, err := s.str()
		if err != nil {
			return err
		}
		if err := s.expect(':'); err != nil {
			return err
		}
		s.space()
		if err := f(key); err != nil {
			return err
		}
		switch s.peek() {
		case ',':
			s.i++
		case '}':
			s.i++
			return nil
		default:
			return errSyntax
		}
	}
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
			return span{start, i}, escaped, nil
		case c == '\\':
			escaped = true
			i++
		case c < ' ':
			return span{}, false, errSyntax
		}
	}
	return span{}, false, errSyntax
}

// str is the string that comes next, decoded as encoding/json would.
func (s *scanner) str() (string, error) {
	sp, escaped, err := s.strSpan()
	if err != nil {
		return "", err
	}
	if !escaped && isASCII(s.b[sp.start:sp.end]) {
		return string(s.b[sp.start:sp.end]), nil
	}
	var out string
	if err := json.Unmarshal(s.b[sp.start-1:sp.end+1], &out); err != nil {
		return "", errSyntax
	}
	return out, nil
}

func isASCII(b []byte) bool {
	for _, c := range b {
		if c >= 0x80 {
			return false
		}
	}
	return true
}

// scalar is the text of the string, number or boolean that comes next; null, objects and arrays are "" and false.
func (s *scanner) scalar() (string, bool, error) {
	switch s.peek() {
	case '"':
		v, err := s.str()
		return v, true, err
	case '{', '[':
		return "", false, s.skip()
	}
	start := s.i
	if err := s.skip(); err != nil {
		return "", false, err
	}
	text := string(s.b[start:s.i])
	if text == "null" {
		return "", false, nil
	}
	return text, true, nil
}

// skip passes over the value that comes next. It does not recurse, so depth costs no stack.
func (s *scanner) skip() error {
	open := 0
	for {
		switch s.peek() {
		case '"':
			if _, _, err := s.strSpan(); err != nil {
				return err
			}
		case '{', '[':
			if open++; s.depth+open > maxDepth {
				return errSyntax
			}
			s.i++
			continue
		case '}', ']':
			if open--; open < 0 {
				return errSyntax
			}
			s.i++
		case ',', ':':
			if open == 0 {
				return errSyntax
			}
			s.i++
			continue
		case 0:
			return errSyntax
		default:
			if err := s.literal(); err != nil {
				return err
			}
		}
		if open == 0 {
			return nil
		}
	}
}

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
