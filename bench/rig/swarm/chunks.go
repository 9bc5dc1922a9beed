package swarm

import "fmt"

// chunks takes the chunked coding of HTTP/1.1 off a stream that comes in pieces. The zero value is
// at the beginning of a body.
type chunks struct {
	left  int // bytes of data that are to come; or the size as far as it was read
	state chunkState
}

type chunkState int

const (
	inSize chunkState = iota // hexadecimal digits, up to the line feed
	inData
	inDataEnd // CR LF behind the data
	inTrailer // behind the last chunk
)

// take calls data for each piece of data in b, and reports whether the body has ended.
func (c *chunks) take(b []byte, data func([]byte)) (ended bool, err error) {
	for len(b) > 0 {
		switch c.state {
		case inSize:
			if b[0] == '\n' {
				c.state = inData
				if c.left == 0 {
					c.state = inTrailer
				}
			} else if b[0] != '\r' {
				digit := unhex(b[0])
				if digit < 0 {
					return false, fmt.Errorf("%q in the size of a chunk", b[0])
				}
				c.left = c.left<<4 | digit
			}
			b = b[1:]
		case inData:
			n := min(c.left, len(b))
			data(b[:n])
			b, c.left = b[n:], c.left-n
			if c.left == 0 {
				c.state = inDataEnd
			}
		case inDataEnd:
			if b[0] == '\n' {
				c.state = inSize
			}
			b = b[1:]
		case inTrailer:
			return true, nil
		}
	}
	return c.state == inTrailer, nil
}

func unhex(b byte) int {
	switch {
	case '0' <= b && b <= '9':
		return int(b - '0')
	case 'a' <= b && b <= 'f':
		return int(b-'a') + 10
	case 'A' <= b && b <= 'F':
		return int(b-'A') + 10
	}
	return -1
}
