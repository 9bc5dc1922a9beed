package swarm

import (
	"bytes"

	"spillway/bench/rig"
)

// stampLen is the length of a whole stamp.
const stampLen = len(rig.StampPrefix) + 19

// scanner finds the stamps in a stream that comes in pieces. It is all the parsing there is: an
// object bears one stamp, whatever it is encoded and framed as.
type scanner struct {
	carry []byte // the end of the last piece, if a stamp may begin there; shorter than a stamp
}

// scan calls found for each stamp that ends in b.
func (s *scanner) scan(b []byte, found func(nanos int64)) {
	if had := len(s.carry); had > 0 {
		s.carry = append(s.carry, b[:min(len(b), stampLen-1)]...)
		seen := eat(s.carry, had, found)
		if seen < had { // undecided, although all of b is in it
			s.carry = append(s.carry[:0], s.carry[seen:]...)
			return
		}
		s.carry = s.carry[:0]
		b = b[seen-had:]
	}
	seen := eat(b, len(b), found)
	s.carry = append(s.carry, b[seen:]...)
}

// eat finds the stamps that begin before a limit, and returns how much of b needs no second look.
func eat(b []byte, limit int, found func(nanos int64)) int {
	at := 0
	for at < limit {
		i := bytes.IndexByte(b[at:limit], rig.StampPrefix[0])
		if i < 0 {
			return limit
		}
		at += i
		if len(b)-at < stampLen {
			return at
		}
		if nanos, ok := stamp(b[at : at+stampLen]); ok {
			found(nanos)
			at += stampLen
		} else {
			at++
		}
	}
	return at
}

// stamp reads the whole of b as a stamp.
func stamp(b []byte) (int64, bool) {
	digits, ok := bytes.CutPrefix(b, []byte(rig.StampPrefix))
	nanos := int64(0)
	for _, d := range digits {
		if d < '0' || d > '9' {
			return 0, false
		}
		nanos = nanos*10 + int64(d-'0')
	}
	return nanos, ok
}
