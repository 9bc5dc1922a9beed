package upstream

import (
	"encoding/json"
	"fmt"
	"io"

	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"spillway/internal/object"
)

// decodeList reads a list item by item, so that its text is never held as a whole.
func decodeList(r *object.Resource, body io.Reader) (*metainternalversion.List, error) {
	list := &metainternalversion.List{}
	d := json.NewDecoder(body)
	if err := expect(d, json.Delim('{')); err != nil {
		return nil, listError(r, err)
	}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return nil, listError(r, err)
		}
		switch key {
		case "metadata":
			err = decodeListMeta(d, &list.ListMeta)
		case "items":
			err = decodeItems(r, d, list)
		default:
			var ignored json.RawMessage
			err = d.Decode(&ignored)
		}
		if err != nil {
			return nil, listError(r, err)
		}
	}
	// The closing brace: without it the list was cut off.
	if err := expect(d, json.Delim('}')); err != nil {
		return nil, listError(r, err)
	}
	return list, nil
}

func listError(r *object.Resource, err error) error {
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return fmt.Errorf("list of %s: %w", r, err)
}

func decodeListMeta(d *json.Decoder, into *metav1.ListMeta) error {
	if err := d.Decode(into); err != nil {
		return err
	}
	_, err := parseRV(into.ResourceVersion)
	return err
}

func decodeItems(r *object.Resource, d *json.Decoder, list *metainternalversion.List) error {
	start, err := d.Token()
	if err != nil || start == nil { // null is a list without items
		return err
	}
	if start != json.Delim('[') {
		return fmt.Errorf("items is %v", start)
	}
	for d.More() {
		var raw json.RawMessage // a new one each time: the object keeps it
		if err := d.Decode(&raw); err != nil {
			return err
		}
		o, err := parse(r, raw)
		if err != nil {
			return err
		}
		list.Items = append(list.Items, item{o})
	}
	return expect(d, json.Delim(']'))
}

func expect(d *json.Decoder, want json.Delim) error {
	got, err := d.Token()
	if err == nil && got != want {
		err = fmt.Errorf("%v instead of %v", got, want)
	}
	return err
}

// parse reads an object and keeps raw. What cannot be read now cannot be read later either.
func parse(r *object.Resource, raw []byte) (*object.Object, error) {
	o, err := r.Parse(raw)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUncacheable, err)
	}
	return o, nil
}
