package wire

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"spillway/internal/object"
)

const (
	// Buffer is how many bytes are read at once. It holds the lines of most events, so that they
	// are scanned where they arrived.
	Buffer = 64 << 10
	// keptLine is how much memory for longer lines is kept for the next one.
	keptLine = 1 << 20
	// maxBytes is a line that no apiserver sends: etcd takes 1.5 MiB by default, and gRPC no more
	// than 2 GiB whatever one sets. It is there so that something else than an apiserver cannot
	// fill the memory.
	maxBytes = 256 << 20
)

// ErrTooLong says that a line or a value is larger than any that an apiserver sends.
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
		case len(l.long) > maxBytes:
			return nil, ErrTooLong
		}
		part, err = l.in.ReadSlice('\n')
	}
}

// ErrUncacheable says that what upstream sends can never be mirrored, whatever is tried again:
// versions that are not decimal numbers, or objects that cannot be read. The resource must be
// passed through.
var ErrUncacheable = errors.New("cannot be mirrored")

// ParseRV reads a resourceVersion, which upstream may make up as it likes: only decimal ones can be
// compared (W-242).
func ParseRV(text string) (uint64, error) {
	rv, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%w: resourceVersion %q is not a decimal number", ErrUncacheable, text)
	}
	return rv, nil
}

// ParseObject reads an object of which raw is not kept. What cannot be read now cannot be read
// later either.
func ParseObject(r *object.Resource, raw []byte) (*object.Object, error) {
	o, err := r.Parse(raw)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUncacheable, err)
	}
	return o, nil
}

// VersionOf is an object's version and key, and whether it is the bookmark at the end of initial
// events.
func VersionOf(raw []byte) (rv uint64, key string, end bool, err error) {
	var o struct {
		Metadata struct {
			Namespace       string            `json:"namespace"`
			Name            string            `json:"name"`
			ResourceVersion string            `json:"resourceVersion"`
			Annotations     map[string]string `json:"annotations"`
		} `json:"metadata"`
	}
	if err := json.Unmarshal(raw, &o); err != nil {
		return 0, "", false, fmt.Errorf("watch event: %w", err)
	}
	key = o.Metadata.Name
	if o.Metadata.Namespace != "" {
		key = o.Metadata.Namespace + "/" + key
	}
	rv, err = ParseRV(o.Metadata.ResourceVersion)
	return rv, key, o.Metadata.Annotations[metav1.InitialEventsAnnotationKey] == "true", err
}

// StatusError is the error in an ERROR event.
func StatusError(raw []byte) error {
	var status metav1.Status
	if err := json.Unmarshal(raw, &status); err != nil || status.Kind != "Status" {
		return fmt.Errorf("ERROR event with %.200q", raw)
	}
	return &apierrors.StatusError{ErrStatus: status}
}

// SplitEvent cuts a line into the event's type and the bytes of its object, which alias the line.
// The common case is cut by position: parsing the object shows whether more than one value stands
// there.
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
