package object

import (
	"encoding/json"
	"fmt"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Bookmark makes the objects of BOOKMARK events: the resource's kind, empty but for a resourceVersion (W-110). Immutable.
//
// "Empty" is a zero value of upstream's Go type, in which required members show. So the template is cut from a bookmark
// that upstream sent, and only until there was one is it the bare type.
type Bookmark struct {
	head, tail  string // around the members of metadata
	annotations map[string]string
	sorted      bool // custom resources print keys sorted: annotations first
}

// NewBookmark is the template of a resource that upstream has sent no bookmark for.
func NewBookmark(r *Resource) *Bookmark {
	head := `{"kind":"` + r.Kind + `","apiVersion":"` + r.APIVersion() + `","metadata":{`
	if !r.Builtin {
		head = `{"apiVersion":"` + r.APIVersion() + `","kind":"` + r.Kind + `","metadata":{`
	}
	return &Bookmark{head: head, tail: "}}", sorted: !r.Builtin}
}

// BookmarkFrom cuts the template out of a bookmark object that upstream sent.
func BookmarkFrom(r *Resource, raw []byte) (*Bookmark, error) {
	b := &Bookmark{sorted: !r.Builtin}
	s := scanner{b: raw}
	var meta span
	err := s.members(func(key string) error {
		start := s.i
		err := s.skip()
		if key == "metadata" {
			meta = span{start, s.i}
		}
		return err
	})
	if err != nil || meta.end-meta.start < 2 || raw[meta.start] != '{' {
		return nil, fmt.Errorf("bookmark of %s: %w", r, errSyntax)
	}
	var m struct {
		Annotations map[string]string `json:"annotations"`
	}
	if err := json.Unmarshal(raw[meta.start:meta.end], &m); err != nil {
		return nil, fmt.Errorf("bookmark of %s: %w", r, err)
	}
	delete(m.Annotations, metav1.InitialEventsAnnotationKey)
	b.head, b.tail = string(raw[:meta.start+1]), string(raw[meta.end-1:])
	b.annotations = m.Annotations
	return b, nil
}

// MaxSize is the most bytes that Append appends.
func (b *Bookmark) MaxSize() int {
	const digitsAndNames = 64
	return len(b.head) + len(b.tail) + len(b.encodeAnnotations(true)) + digitsAndNames
}

// Append appends the bookmark object for rv. end marks the end of a watch's initial events.
func (b *Bookmark) Append(dst []byte, rv uint64, end bool) []byte {
	annotations := b.encodeAnnotations(end)
	dst = append(dst, b.head...)
	if b.sorted && annotations != "" {
		dst = append(append(dst, annotations...), ',')
	}
	dst = append(dst, `"resourceVersion":"`...)
	dst = strconv.AppendUint(dst, rv, 10)
	dst = append(dst, '"')
	if !b.sorted && annotations != "" {
		dst = append(append(dst, ','), annotations...)
	}
	return append(dst, b.tail...)
}

func (b *Bookmark) encodeAnnotations(end bool) string {
	if !end && len(b.annotations) == 0 {
		return ""
	}
	all := make(map[string]string, len(b.annotations)+1)
	for k, v := range b.annotations {
		all[k] = v
	}
	if end {
		all[metav1.InitialEventsAnnotationKey] = "true"
	}
	text, err := json.Marshal(all)
	if err != nil { // a map of strings always encodes
		return ""
	}
	return `"annotations":` + string(text)
}
