package rawclient

import (
	"encoding/json"
	"fmt"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// WatchEvent is one watch event as a client received it.
type WatchEvent struct {
	Type   string // ADDED, MODIFIED, DELETED, BOOKMARK, ERROR
	Key    string // namespace/name, or name; empty for BOOKMARK and ERROR
	UID    string
	RV     uint64
	End    bool           // the bookmark that ends the initial events
	Status *metav1.Status // of an ERROR
	Raw    []byte         // the object, as sent
	Line   []byte         // the whole line, line feed included
}

// String is short enough for a failure message.
func (e WatchEvent) String() string {
	switch {
	case e.Status != nil:
		return fmt.Sprintf("ERROR %d %s: %s", e.Status.Code, e.Status.Reason, e.Status.Message)
	case e.End:
		return fmt.Sprintf("%s %d end", e.Type, e.RV)
	case e.Key == "":
		return fmt.Sprintf("%s %d", e.Type, e.RV)
	}
	return fmt.Sprintf("%s %s %d", e.Type, e.Key, e.RV)
}

// parseEvent reads one line of a watch.
func parseEvent(line []byte) (WatchEvent, error) {
	var frame struct {
		Type   string          `json:"type"`
		Object json.RawMessage `json:"object"`
	}
	if err := json.Unmarshal(line, &frame); err != nil {
		return WatchEvent{}, fmt.Errorf("line %.80q: %w", line, err)
	}
	e := WatchEvent{Type: frame.Type, Raw: frame.Object, Line: line}
	if e.Type == "ERROR" {
		e.Status = &metav1.Status{}
		return e, json.Unmarshal(frame.Object, e.Status)
	}
	item, err := parseItem(frame.Object)
	if err != nil {
		return e, err
	}
	e.Key, e.UID, e.RV, e.End = item.Key, item.UID, item.RV, item.initialEventsEnd
	return e, nil
}

// Item is one object of a list as a client received it.
type Item struct {
	Key string // namespace/name, or name
	UID string
	RV  uint64
	Raw []byte

	initialEventsEnd bool
}

func parseItem(raw json.RawMessage) (Item, error) {
	var object struct {
		Metadata struct {
			Name, Namespace, UID, ResourceVersion string
			Annotations                           map[string]string
		}
	}
	if err := json.Unmarshal(raw, &object); err != nil {
		return Item{}, err
	}
	m := object.Metadata
	rv, err := parseRV(m.ResourceVersion)
	if err != nil {
		return Item{}, err
	}
	item := Item{Key: m.Name, UID: m.UID, RV: rv, Raw: raw,
		initialEventsEnd: m.Annotations[metav1.InitialEventsAnnotationKey] == "true"}
	if m.Namespace != "" {
		item.Key = m.Namespace + "/" + m.Name
	}
	return item, nil
}

// parseRV reads a resourceVersion; "" is 0.
func parseRV(rv string) (uint64, error) {
	if rv == "" {
		return 0, nil
	}
	return strconv.ParseUint(rv, 10, 64)
}
