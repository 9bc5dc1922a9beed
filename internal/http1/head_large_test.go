package http1

import (
	"bytes"
	"io"
	"net"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"spillway/internal/flowcontrol"
)

// headEnd is never behind the end that a reader of heads finds: what is behind that may be another
// request.
func FuzzHeadEnd(f *testing.F) {
	for _, s := range []string{"GET / HTTP/1.1\r\nA: b\r\n\r\nbody", "a\n\nb", "a\r\n\nb", "a\n\r\nb", "\r\n\r\n",
		"a\r\r\n\r\n"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		end := headEnd(b, 0)
		for _, terminator := range []string{"\n\r\n", "\n\n"} {
			if n := bytes.Index(b, []byte(terminator)); n >= 0 && (end < 0 || end > n+len(terminator)) {
				t.Errorf("%q: the end is at %d, not at %d", b, end, n+len(terminator))
			}
		}
		for at := range b { // found in pieces as well
			if again := headEnd(b, at-3); end >= 0 && at <= end-1 && again != end && headEnd(b[:at], 0) < 0 && again > end {
				t.Errorf("%q: from %d the end is at %d, not at %d", b, at, again, end)
			}
		}
	})
}

func TestHeadsInSmallPieces(t *testing.T) {
	text := cookieOf(40_000) + "the rest"
	all, end, err := readLargeHead(pieces{iotest.OneByteReader(strings.NewReader(text))}, nil, &flowcontrol.LargeHead{})
	if err != nil || end != len(text)-len("the rest") || string(all[:end]) != text[:end] {
		t.Errorf("%d of %d bytes, %v", end, len(text), err)
	}
}

// pieces is a connection that is only read.
type pieces struct{ io.Reader }

func (pieces) Write([]byte) (int, error) { return 0, net.ErrClosed }

func (pieces) Close() error { return nil }

func (pieces) LocalAddr() net.Addr { return nil }

func (pieces) RemoteAddr() net.Addr { return nil }

func (pieces) SetDeadline(time.Time) error { return nil }

func (pieces) SetReadDeadline(time.Time) error { return nil }

func (pieces) SetWriteDeadline(time.Time) error { return nil }
