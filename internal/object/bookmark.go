package object

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Bookmark makes the objects of BOOKMARK events: the resource's kind, empty but for a
// resourceVersion (W-110). Immutable.
//
// "Empty" is a zero value of upstream's Go type, in which required members show. So the template is
// cut from a bookmark that upstream sent. Until there was one it is the bare type.
type Bookmark struct {
	resource   *Resource
	head, tail string // around the members of metadata
	// rest are the other members of metadata, each with a comma: up to 1.34 upstream writes
	// "creationTimestamp":null.
	rest        string
	annotations map[string]string
	isSorted    bool // custom resources print keys sorted: annotations first
}

// NewBookmark is the template of a resource that upstream has sent no bookmark for.
func NewBookmark(r *Resource) *Bookmark {
	head := `{"kind":"` + r.Kind + `","apiVersion":"` + r.APIVersion() + `","metadata":{`
	if !r.Builtin {
		head = `{"apiVersion":"` + r.APIVersion() + `","kind":"` + r.Kind + `","metadata":{`
	}
	return &Bookmark{resource: r, head: head, tail: "}}", isSorted: !r.Builtin}
}

// Resource is what the bookmark is about.
func (b *Bookmark) Resource() *Resource { return b.resource }

// listBlueprint is the annotation in which 1.32 sends an empty list, in the encoding of the watch,
// at the end of the initial events. Neither another watch nor a later bookmark may have it.
const listBlueprint = "kubernetes.io/initial-events-list-blueprint"

// BookmarkFrom cuts the template out of a bookmark object that upstream sent.
func BookmarkFrom(r *Resource, raw []byte) (*Bookmark, error) {
	raw = bytes.TrimSpace(raw)
	if !json.Valid(raw) {
		return nil, fmt.Errorf("bookmark of %s: %w", r, errSyntax)
	}
	b := &Bookmark{resource: r, isSorted: !r.Builtin}
	s := scanner{b: raw}
	all := s.members()
	for all.next() {
		all.err = b.readMember(&s, all.key)
	}
	err := all.err
	if err == nil && b.head == "" {
		err = errors.New("metadata is missing")
	}
	if err != nil {
		return nil, fmt.Errorf("bookmark of %s: %w", r, err)
	}
	delete(b.annotations, metav1.InitialEventsAnnotationKey)
	delete(b.annotations, listBlueprint)
	return b, nil
}

// readMember cuts the bookmark at its metadata.
func (b *Bookmark) readMember(s *scanner, key string) error {
	if key != "metadata" || s.peek() != '{' {
		return s.skip()
	}
	start := s.i
	m := s.members()
	for m.next() {
		m.err = b.readMetadata(s, m.key)
	}
	b.head, b.tail = string(s.b[:start+1]), string(s.b[s.i-1:])
	return m.err
}

// readMetadata notes one member of the metadata.
func (b *Bookmark) readMetadata(s *scanner, key string) error {
	start := s.i
	if err := s.skip(); err != nil {
		return err
	}
	value := s.b[start:s.i]
	switch key {
	case "resourceVersion":
	case "annotations":
		return json.Unmarshal(value, &b.annotations)
	default:
		b.rest += strconv.Quote(key) + ":" + string(value) + ","
	}
	return nil
}

// Append appends the bookmark object for rv. end marks the end of a watch's initial events.
func (b *Bookmark) Append(dst []byte, rv uint64, end bool) []byte {
	annotations := b.encodeAnnotations(end)
	dst = append(dst, b.head...)
	if b.isSorted {
		dst = append(append(dst, annotations...), b.rest...)
	}
	dst = append(dst, `"resourceVersion":"`...)
	dst = strconv.AppendUint(dst, rv, 10)
	dst = append(dst, '"', ',')
	if !b.isSorted {
		dst = append(append(dst, b.rest...), annotations...)
	}
	return append(dst[:len(dst)-1], b.tail...) // no comma after the last member
}

// encodeAnnotations is the member with its comma, or nothing.
func (b *Bookmark) encodeAnnotations(end bool) string {
	if !end && len(b.annotations) == 0 {
		return ""
	}
	all := make(map[string]string, len(b.annotations)+1)
	maps.Copy(all, b.annotations)
	if end {
		all[metav1.InitialEventsAnnotationKey] = "true"
	}
	text, err := json.Marshal(all)
	if err != nil { // a map of strings always encodes
		return ""
	}
	return `"annotations":` + string(text) + ","
}
