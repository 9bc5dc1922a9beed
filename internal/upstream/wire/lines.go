package wire

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"k8s.io/apimachinery/pkg/watch"
)

const (
	// Buffer is how many bytes are read at once. It holds the lines of most events, so that they
	// are scanned where they arrived.
	Buffer = 64 << 10
	// keptLineBytes is how much memory for longer lines is kept for the next one.
	keptLineBytes = 1 << 20
	// maxBytes is the length of the longest line. No API server sends longer ones: etcd takes 1.5 MiB
	// by default, and gRPC no more than 2 GiB whatever its settings. The limit is there so that
	// something that is no API server cannot fill the memory.
	maxBytes = 256 << 20
)

// ErrTooLong says that a line or a value is larger than any that an API server sends.
var ErrTooLong = fmt.Errorf("a line of more than %d MiB", maxBytes>>20)

// Lines reads a watch body line by line: upstream ends each event with a line feed and writes none
// inside (W-130).
type Lines struct {
	in   *bufio.Reader
	long []byte // a line that is longer than the read buffer
}

// NewLines reads the lines of a body.
func NewLines(r io.Reader) *Lines { return &Lines{in: bufio.NewReaderSize(r, Buffer)} }

// Next is the next line without its line feed, valid until the next call. A line that was cut off
// is never returned: the watch starts again from the version before it.
func (l *Lines) Next() ([]byte, error) {
	part, err := l.in.ReadSlice('\n')
	if err == nil {
		return part[:len(part)-1], nil
	}
	if cap(l.long) > keptLineBytes {
		l.long = nil
	}
	l.long = l.long[:0]
	for {
		l.long = append(l.long, part...)
		switch {
		case err == nil:
			return l.long[:len(l.long)-1], nil
		case !errors.Is(err, bufio.ErrBufferFull):
			if err == io.EOF && len(l.long) > 0 {
				err = io.ErrUnexpectedEOF
			}
			return nil, err
		case len(l.long) > maxBytes:
			return nil, ErrTooLong
		}
		part, err = l.in.ReadSlice('\n')
	}
}

// SplitEvent cuts a line into the event's type and the bytes of its object, which may alias the
// line. The common case is cut by position: parsing the object shows whether it holds more than one
// value.
func SplitEvent(line []byte) (watch.EventType, []byte, error) {
	const head, middle = `{"type":"`, `","object":`
	if rest, ok := bytes.CutPrefix(line, []byte(head)); ok {
		kind, object, ok := bytes.Cut(rest, []byte(middle))
		if t := eventType(kind); ok && t != "" && len(object) > 1 && object[len(object)-1] == '}' {
			return t, object[:len(object)-1], nil
		}
	}
	var e struct {
		Type   string          `json:"type"`
		Object json.RawMessage `json:"object"`
	}
	if err := json.Unmarshal(line, &e); err != nil {
		return "", nil, fmt.Errorf("watch event: %w", err)
	}
	t := eventType([]byte(e.Type))
	if t == "" {
		return "", nil, fmt.Errorf("watch event of unknown type %.40q", e.Type)
	}
	return t, e.Object, nil
}

// eventType is the type of a name, without an allocation; "" if there is none.
func eventType(name []byte) watch.EventType {
	for _, t := range [...]watch.EventType{watch.Added, watch.Modified, watch.Deleted, watch.Bookmark, watch.Error} {
		if string(name) == string(t) {
			return t
		}
	}
	return ""
}
