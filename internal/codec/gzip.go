package codec

import (
	"errors"
	"io"
	"sync"

	"github.com/klauspost/compress/gzip"

	"spillway/internal/object"
)

// writers are compressors at upstream's level (W-6); each is a few hundred KiB.
var writers = sync.Pool{New: func() any {
	w, err := gzip.NewWriterLevel(io.Discard, gzip.BestSpeed)
	if err != nil { // the level is a constant
		panic(err)
	}
	return w
}}

// AppendMember appends content as a gzip member of its own: a whole body, or a piece of a stream of
// members (W-7).
//
// The content is flushed before the member ends. Readers that look for the next member before they
// return the last bytes of one, as Go's does, would keep the last bytes back until there is another
// event.
func AppendMember(dst, content []byte) []byte {
	z := writers.Get().(*gzip.Writer)
	defer writers.Put(z)
	sink := appender(dst)
	z.Reset(&sink)
	_, err := z.Write(content)
	if err := errors.Join(err, z.Flush(), z.Close()); err != nil { // writing to memory does not fail
		panic(err)
	}
	z.Reset(io.Discard)
	return sink
}

// Member is a gzip member with what is made of a run of objects in an encoding, and of nothing
// else. It is made once for all requests of the same run.
func Member(enc object.Encoding, run []*object.Object, content func() ([]byte, error)) ([]byte, error) {
	return run[0].Form(memberForm(enc), run[1:]...).Get(func() ([]byte, error) {
		plain, err := content()
		if err != nil {
			return nil, err
		}
		return AppendMember(nil, plain), nil
	})
}

// appender is a byte slice to write to. Writing to it cannot fail.
type appender []byte

func (a *appender) Write(p []byte) (int, error) {
	*a = append(*a, p...)
	return len(p), nil
}
