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
	if err := decodeMembers(r, wire.NewValues(in), &list); err != nil {
		return listing{}, fmt.Errorf("list of %s: %w", r, err)
	}
	return list, nil
}

// decodeMembers reads up to the closing brace: without it the list was cut off.
func decodeMembers(r *object.Resource, v *wire.Values, list *listing) error {
	if err := v.Expect('{'); err != nil {
		return err
	}
	for first := true; ; first = false {
		more, err := v.More(first, '}')
		if err != nil || !more {
			return err
		}
		name, err := v.Next()
		if err != nil {
			return err
		}
		var key string
		if err := json.Unmarshal(name, &key); err != nil {
			return err
		}
		if err := v.Expect(':'); err != nil {
			return err
		}
		if err := decodeMember(r, v, list, key); err != nil {
			return err
		}
	}
}

func decodeMember(r *object.Resource, v *wire.Values, list *listing, key string) error {
	if key == "items" {
		return decodeItems(r, v, list)
	}
	value, err := v.Next()
	switch {
	case err != nil:
		return err
	case key == "metadata":
		return decodeListMeta(value, &list.meta)
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

func decodeItems(r *object.Resource, v *wire.Values, list *listing) error {
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
		o, err := parse(r, raw)
		if err != nil {
			return err
		}
		list.objects = append(list.objects, o)
	}
}
