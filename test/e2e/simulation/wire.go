package simulation

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
)

// message is one watch event as a client reads it.
type message struct {
	Type   string
	Object []byte

	key  string
	rv   uint64
	end  bool   // of the initial events
	code int    // of an ERROR
	text string // likewise
}

func (m *message) String() string {
	switch m.Type {
	case "BOOKMARK":
		return fmt.Sprintf("BOOKMARK %d", m.rv)
	case "ERROR":
		return fmt.Sprintf("ERROR %d %s", m.code, m.text)
	}
	return fmt.Sprintf("%s %s %d", m.Type, m.key, m.rv)
}

// wire is a client's side of a connection: bytes come in pieces, messages come out. A frame that is
// cut off is as if it had never been sent.
type wire struct {
	chunked bool
	buf     []byte
	ended   bool // cleanly
}

// write takes what came, and returns the messages that are complete.
func (w *wire) write(p []byte) ([]*message, error) {
	w.buf = append(w.buf, p...)
	var all []*message
	for {
		line, err := w.line()
		if err != nil || line == nil {
			return all, err
		}
		m, err := parse(line)
		if err != nil {
			return all, err
		}
		all = append(all, m)
	}
}

// line cuts off the next event, nil if it is not complete: a line, and exactly one chunk where
// there are chunks.
func (w *wire) line() ([]byte, error) {
	if w.ended && len(w.buf) > 0 {
		return nil, fmt.Errorf("%q after the end", w.buf)
	}
	body, size := w.buf, bytes.IndexByte(w.buf, '\n')+1
	used := size
	if w.chunked {
		head := bytes.Index(w.buf, []byte("\r\n"))
		if head < 0 {
			return nil, nil
		}
		n, err := strconv.ParseUint(string(w.buf[:head]), 16, 31)
		if err != nil {
			return nil, fmt.Errorf("chunk size: %w", err)
		}
		size = int(n)
		if used = head + 2 + size + 2; used > len(w.buf) {
			return nil, nil
		}
		body = w.buf[head+2:]
		if string(body[size:size+2]) != "\r\n" {
			return nil, fmt.Errorf("a chunk of %d bytes goes on with %q", size, body[size:size+2])
		}
	}
	if size == 0 && w.chunked {
		w.buf, w.ended = w.buf[used:], true
		return w.line()
	}
	if size == 0 {
		return nil, nil
	}
	line := body[:size]
	w.buf = w.buf[used:]
	if bytes.IndexByte(line, '\n') != size-1 {
		return nil, fmt.Errorf("%q is not one line", line)
	}
	return line, nil
}

// parse reads one event. Its shape is always the same, to the byte.
func parse(line []byte) (*message, error) {
	kind, ok := bytes.CutPrefix(line, []byte(`{"type":"`))
	kind, body, cut := bytes.Cut(kind, []byte(`","object":`))
	body, closed := bytes.CutSuffix(body, []byte("}\n"))
	if !ok || !cut || !closed {
		return nil, fmt.Errorf("%q is no watch event", line)
	}
	m := &message{Type: string(kind), Object: bytes.Clone(body)}
	var o struct {
		Kind, Message string
		Code          int
		Metadata      struct {
			Name, Namespace, ResourceVersion string
			Annotations                      map[string]string
		}
	}
	if err := json.Unmarshal(m.Object, &o); err != nil {
		return nil, fmt.Errorf("%w in %q", err, line)
	}
	m.code, m.text = o.Code, o.Message
	switch m.Type {
	case "ERROR":
		return m, nil
	case "ADDED", "MODIFIED", "DELETED", "BOOKMARK":
	default:
		return nil, fmt.Errorf("an event of type %q", m.Type)
	}
	rv, err := strconv.ParseUint(o.Metadata.ResourceVersion, 10, 64)
	if err != nil || o.Kind != "Pod" {
		return nil, fmt.Errorf("not a versioned pod: %q", line)
	}
	m.rv, m.end = rv, o.Metadata.Annotations["k8s.io/initial-events-end"] == "true"
	m.key = o.Metadata.Namespace + "/" + o.Metadata.Name
	return m, nil
}
