package upstream

import (
	"bytes"
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/watch"
)

// split cuts a line into the event's type and the bytes of its object, which alias the line. The
// common case is cut by position: parsing the object shows whether more than one value stands
// there.
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
