package codec

import (
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
func AppendMember(dst, content []byte) []byte {
	sink := appender(dst)
	compress(&sink, func(w io.Writer) error {
		_, err := w.Write(content)
		return err
	})
	return sink
}

// WriteGzip writes what content writes to the writer it is given, gzipped, to w.
func WriteGzip(w io.Writer, content func(io.Writer) error) error { return compress(w, content) }

func compress(w io.Writer, content func(io.Writer) error) error {
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
