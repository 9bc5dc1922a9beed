package upstream

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
	// readBuffer holds the lines of most events, so that they are scanned where they arrived.
	readBuffer = 64 << 10
	// keptLine is how much memory for longer lines is kept for the next one.
	keptLine = 1 << 20
	// maxLine is a line that no apiserver sends: etcd takes 1.5 MiB by default, and gRPC no more
	// than 2 GiB whatever one sets. It is there so that something else than an apiserver cannot
	// fill the memory.
	maxLine = 256 << 20
)

var errLineTooLong = fmt.Errorf("a line of more than %d MiB", maxLine>>20)

// lines reads a watch body line by line: upstream ends each event with a line feed and writes none
// inside (W-130).
type lines struct {
	in   *bufio.Reader
	long []byte // a line that is longer than the read buffer
}

func newLines(r io.Reader) *lines { return &lines{in: bufio.NewReaderSize(r, readBuffer)} }

// next is the next line without its line feed, valid until the next call. A line that was cut off
// is never returned: the watch starts again from the version before it.
func (l *lines) next() ([]byte, error) {
	part, err := l.in.ReadSlice('\n')
	if err == nil {
		return part[:len(part)-1], nil
	}
	if cap(l.long) > keptLine {
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
		case len(l.long) > maxLine:
			return nil, errLineTooLong
		}
		part, err = l.in.ReadSlice('\n')
	}
}

// split cuts a line into the event's type and the bytes of its object, which alias the line. The
// common case is cut by position: parsing the object shows whether more than one value stands there.
func split(line []byte) (watch.EventType, []byte, error) {
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

func eventType(name []byte) watch.EventType {
	switch string(name) {
	case "ADDED":
		return watch.Added
	case "MODIFIED":
		return watch.Modified
	case "DELETED":
		return watch.Deleted
	case "BOOKMARK":
		return watch.Bookmark
	case "ERROR":
		return watch.Error
	}
	return ""
}
