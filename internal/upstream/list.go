package upstream

import (
	"encoding/json"
	"fmt"
	"io"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"spillway/internal/object"
	"spillway/internal/upstream/wire"
)

// listing is a list, or a page of one.
type listing struct {
	meta    metav1.ListMeta
	objects []*object.Object
}

// decodeList reads a list item by item, as it arrives.
func decodeList(r *object.Resource, in io.Reader) (listing, error) {
	var list listing
	var err error
	list.meta, err = readItems(in, func(raw []byte) error {
		o, err := parse(r, raw)
		if err == nil {
			list.objects = append(list.objects, o)
		}
		return err
	})
	if err != nil {
		return listing{}, fmt.Errorf("list of %s: %w", r, err)
	}
	return list, nil
}

// readItems reads a list as it arrives, up to the closing brace: without it the list was cut off.
// It calls item with each item's text, which is valid until item returns.
func readItems(in io.Reader, item func(raw []byte) error) (meta metav1.ListMeta, err error) {
	v := wire.NewValues(in)
	if err := v.Expect('{'); err != nil {
		return meta, err
	}
	for first := true; ; first = false {
		more, err := v.More(first, '}')
		if err != nil || !more {
			return meta, err
		}
		name, err := v.Next()
		if err != nil {
			return meta, err
		}
		var key string
		if err := json.Unmarshal(name, &key); err != nil {
			return meta, err
		}
		if err := v.Expect(':'); err != nil {
			return meta, err
		}
		if err := readMember(v, key, &meta, item); err != nil {
			return meta, err
		}
	}
}

func readMember(v *wire.Values, key string, meta *metav1.ListMeta, item func([]byte) error) error {
	if key == "items" {
		return readArray(v, item)
	}
	value, err := v.Next()
	switch {
	case err != nil:
		return err
	case key == "metadata":
		return decodeListMeta(value, meta)
	case !json.Valid(value):
		return fmt.Errorf("%w in %q", wire.ErrNoJSON, key)
	}
	return nil
}

func decodeListMeta(value []byte, into *metav1.ListMeta) error {
	if err := json.Unmarshal(value, into); err != nil {
		return err
	}
	_, err := parseRV(into.ResourceVersion)
	return err
}

func readArray(v *wire.Values, item func([]byte) error) error {
	if c, err := v.Peek(); err != nil {
		return err
	} else if c != '[' {
		value, err := v.Next()
		if err == nil && string(value) != "null" { // null is a list without items
			err = fmt.Errorf("items is %.40q", value)
		}
		return err
	}
	if err := v.Expect('['); err != nil {
		return err
	}
	for first := true; ; first = false {
		more, err := v.More(first, ']')
		if err != nil || !more {
			return err
		}
		raw, err := v.Next()
		if err != nil {
			return err
		}
		if err := item(raw); err != nil {
			return err
		}
	}
}
