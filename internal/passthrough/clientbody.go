package passthrough

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http/httputil"
	"net/textproto"
	"sync"
	"sync/atomic"
	"time"
)

// clientBody is the body of a request that a transport reads while it arrives, on a goroutine of
// its own and maybe beyond the answer. Once it is closed, nothing reads from the client any more.
type clientBody struct {
	// Static after construction.
	from        io.Reader
	setDeadline func(time.Time) error // sets the time by which all of it must have arrived; zero: none
	stop        func()                // ends a Read that waits
	onEnd       func()                // called when all of it has been read; nil: nothing is

	reading  sync.Mutex // held by Read
	closed   atomic.Bool
	complete atomic.Bool // it was read to its end
	broken   atomic.Bool // the client sends no such end: upstream is not to blame
}

// Read implements io.Reader.
func (b *clientBody) Read(p []byte) (int, error) {
	b.reading.Lock()
	defer b.reading.Unlock()
	switch {
	case b.complete.Load():
		return 0, io.EOF
	case b.closed.Load():
		return 0, errBodyClosed
	}
	n, err := b.from.Read(p)
	switch {
	case err == io.EOF:
		b.complete.Store(true)
		_ = b.setDeadline(time.Time{}) // from here on it is upstream's time
		if b.onEnd != nil {
			b.onEnd()
		}
	case err != nil && !b.closed.Load():
		b.broken.Store(true)
	}
	return n, err
}

var errBodyClosed = errors.New("the exchange has ended, or upstream wants no more of the body")

// Close ends a Read that waits: upstream wants no more of the body. HTTP/2's transport waits for
// Close before it ends an answer, and a client that has seen the head of a refusal may send nothing
// more. No Read is under way once Close has returned.
func (b *clientBody) Close() error {
	if !b.complete.Load() && b.closed.CompareAndSwap(false, true) {
		b.stop()
	}
	b.reading.Lock()
	defer b.reading.Unlock()
	return nil
}

// sizedBody reads a body of known length, and no byte behind it.
type sizedBody struct {
	from io.Reader
	left int64
}

// Read implements io.Reader.
func (b *sizedBody) Read(p []byte) (int, error) {
	n, err := b.from.Read(p[:min(int64(len(p)), b.left)])
	b.left -= int64(n)
	switch {
	case b.left == 0:
		return n, io.EOF
	case err == io.EOF:
		return n, io.ErrUnexpectedEOF
	}
	return n, err
}

// trailerBytesLimit is how long a trailer may be: net/http's server takes as much.
const trailerBytesLimit = 4 << 10

// chunkedBody reads a body in chunks with net/http's own reader, as upstream would read it; and the
// trailer, which is dropped.
type chunkedBody struct {
	from   *bufio.Reader
	chunks io.Reader
}

func newChunkedBody(from *bufio.Reader) *chunkedBody {
	return &chunkedBody{from: from, chunks: httputil.NewChunkedReader(from)}
}

// Read implements io.Reader.
func (b *chunkedBody) Read(p []byte) (int, error) {
	n, err := b.chunks.Read(p)
	if err == io.EOF {
		err = b.readTrailer()
	}
	return n, err
}

// readTrailer reads to the end of the trailer, and no byte behind it, and returns io.EOF.
func (b *chunkedBody) readTrailer() error {
	var trailer []byte
	for !bytes.Equal(trailer, []byte("\r\n")) && !bytes.HasSuffix(trailer, []byte("\r\n\r\n")) {
		line, err := b.from.ReadSlice('\n')
		trailer = append(trailer, line...)
		switch {
		case err == io.EOF:
			return io.ErrUnexpectedEOF
		case err != nil:
			return fmt.Errorf("reading a trailer: %w", err)
		case len(trailer) > trailerBytesLimit:
			return errors.New("the trailer is too long")
		}
	}
	if _, err := textproto.NewReader(bufio.NewReader(bytes.NewReader(trailer))).ReadMIMEHeader(); err != nil {
		return errors.New("malformed trailer")
	}
	return io.EOF
}
