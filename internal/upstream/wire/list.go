package wire

import (
	"encoding/json"
	"fmt"
	"io"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"spillway/internal/object"
)

// Listing is a list, or a page of one.
type Listing struct {
	Meta    metav1.ListMeta
	Objects []*object.Object
}

// ReadList reads a list item by item, as it arrives.
func ReadList(r *object.Resource, in io.Reader) (Listing, error) {
	var list Listing
	var err error
	list.Meta, err = ReadItems(in, func(raw []byte) error {
		o, err := ParseObject(r, raw)
		if err == nil {
			list.Objects = append(list.Objects, o)
		}
		return err
	})
	if err != nil {
		return Listing{}, fmt.Errorf("list of %s: %w", r, err)
	}
	return list, nil
}

// ReadItems reads a list as it arrives, up to the closing brace: without it the list was cut off.
// It calls onItem with each item's text, which is valid until onItem returns.
func ReadItems(in io.Reader, onItem func(raw []byte) error) (meta metav1.ListMeta, err error) {
	v := newValues(in)
	if err := v.expect('{'); err != nil {
		return meta, err
	}
	for first := true; ; first = false {
		more, err := v.hasMore(first, '}')
		if err != nil || !more {
			return meta, err
		}
		name, err := v.next()
		if err != nil {
			return meta, err
		}
		var key string
		if err := json.Unmarshal(name, &key); err != nil {
			return meta, err
		}
		if err := v.expect(':'); err != nil {
			return meta, err
		}
		if err := readMember(v, key, &meta, onItem); err != nil {
			return meta, err
		}
	}
}

func readMember(v *values, key string, meta *metav1.ListMeta, onItem func([]byte) error) error {
	if key == "items" {
		return readArray(v, onItem)
	}
	value, err := v.next()
	switch {
	case err != nil:
		return err
	case key == "metadata":
		return readListMeta(value, meta)
	case !json.Valid(value):
		return fmt.Errorf("%w in %q", errNoJSON, key)
	}
	return nil
}

func readListMeta(value []byte, into *metav1.ListMeta) error {
	if err := json.Unmarshal(value, into); err != nil {
		return err
	}
	_, err := ParseRV(into.ResourceVersion)
	return err
}

func readArray(v *values, onItem func([]byte) error) error {
	c, err := v.peek()
	if err != nil {
		return err
	}
	if c != '[' {
		value, err := v.next()
		if err == nil && string(value) != "null" { // null is a list without items
			err = fmt.Errorf("items is %.40q", value)
		}
		return err
	}
	if err := v.expect('['); err != nil {
		return err
	}
	for first := true; ; first = false {
		more, err := v.hasMore(first, ']')
		if err != nil || !more {
			return err
		}
		raw, err := v.next()
		if err != nil {
			return err
		}
		if err := onItem(raw); err != nil {
			return err
		}
	}
}
