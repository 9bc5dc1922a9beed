package codec

import (
	"errors"
	"io"
	"sync"

	"github.com/klauspost/compress/gzip"
)

// writers are compressors at upstream's level (W-6); each is a few hundred KiB.
var writers = sync.Pool{New: func() any {
	w, err := gzip.NewWriterLevel(io.Discard, gzip.BestSpeed)
	if err != nil { // the level is a constant
		panic(err)
	}
	return w
}}

// AppendMember appends content as a gzip member of its own: a whole body, or a piece of a stream of members (W-7).
//
// The content is flushed before the member ends. Readers that look for the next member before they return the last bytes of one, as
// Go's does, would keep the last bytes back until there is another event.
func AppendMember(dst, content []byte) []byte {
	sink := appender(dst)
	_ = compress(&sink, func(z *gzip.Writer) error { // writing to memory does not fail
		_, err := z.Write(content)
		return errors.Join(err, z.Flush())
	})
	return sink
}

// WriteGzip writes what content writes to the writer it is given, gzipped, to w.
func WriteGzip(w io.Writer, content func(io.Writer) error) error {
	return compress(w, func(z *gzip.Writer) error { return content(z) })
}

func compress(w io.Writer, content func(*gzip.Writer) error) error {
	z := writers.Get().(*gzip.Writer)
	defer func() {
		z.Reset(io.Discard)
		writers.Put(z)
	}()
	z.Reset(w)
	if err := content(z); err != nil {
		return err
	}
	return z.Close()
}

// appender is a byte slice to write to. Writing to it cannot fail.
type appender []byte

func (a *appender) Write(p []byte) (int, error) {
	*a = append(*a, p...)
	return len(p), nil
}
