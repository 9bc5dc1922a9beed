package rawclient

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"io"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ListResult is the answer to one GET, as received.
type ListResult struct {
	Status    int
	Header    http.Header
	Body      []byte // decompressed
	Items     []Item // of a list; nil for anything else
	RV        uint64 // of the list
	Continue  string
	Remaining *int64
	Failure   *metav1.Status // if the body is one
}

// List sends one GET on a connection of its own and reads the whole answer. Any HTTP status is a
// result, not an error.
func List(ctx context.Context, baseURL, path string, opts ...RequestOption) (*ListResult, error) {
	response, done, err := call(ctx, baseURL, path, opts)
	if err != nil {
		return nil, err
	}
	defer done()
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, err
	}
	if response.Header.Get("Content-Encoding") == "gzip" {
		z, err := gzip.NewReader(bytes.NewReader(body))
		if err != nil {
			return nil, err
		}
		if body, err = io.ReadAll(z); err != nil {
			return nil, err
		}
	}
	result := &ListResult{Status: response.StatusCode, Header: response.Header, Body: body}
	return result, result.parse()
}

// parse fills in what a JSON body tells. Other bodies are left as they are.
func (l *ListResult) parse() error {
	var list struct {
		Kind     string
		Metadata struct {
			ResourceVersion, Continue string
			RemainingItemCount        *int64
		}
		Items []json.RawMessage
	}
	if json.Unmarshal(l.Body, &list) != nil {
		return nil //nolint:nilerr // it is no list
	}
	if list.Kind == "Status" {
		l.Failure = &metav1.Status{}
		return json.Unmarshal(l.Body, l.Failure)
	}
	var err error
	if l.RV, err = parseRV(list.Metadata.ResourceVersion); err != nil {
		return err
	}
	l.Continue, l.Remaining = list.Metadata.Continue, list.Metadata.RemainingItemCount
	for _, raw := range list.Items {
		item, err := parseItem(raw)
		if err != nil {
			return err
		}
		l.Items = append(l.Items, item)
	}
	return nil
}

// Keys are the keys of the items, in their order.
func (l *ListResult) Keys() []string {
	keys := make([]string, len(l.Items))
	for i, item := range l.Items {
		keys[i] = item.Key
	}
	return keys
}
