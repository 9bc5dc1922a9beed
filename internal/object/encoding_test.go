package object

import "testing"

// TestMediaTypes is W-41.
func TestMediaTypes(t *testing.T) {
	for _, c := range []struct {
		enc              Encoding
		document, stream string
	}{
		{Encoding{}, "application/json", "application/json"},
		{Encoding{Chunked: true, Gzip: true, Bookmarks: true}, "application/json", "application/json"},
		{Encoding{View: Metadata}, "application/json", "application/json"},
		{Encoding{Format: YAML, View: MetadataV1beta1}, "application/yaml", "application/yaml"},
		{Encoding{Format: Protobuf}, "application/vnd.kubernetes.protobuf",
			"application/vnd.kubernetes.protobuf;stream=watch"},
		{Encoding{Format: Protobuf, View: Metadata}, "application/vnd.kubernetes.protobuf",
			"application/vnd.kubernetes.protobuf;stream=watch"},
	} {
		if got := c.enc.MediaType(); got != c.document {
			t.Errorf("document of %+v: got %q, want %q", c.enc, got, c.document)
		}
		if got := c.enc.StreamMediaType(); got != c.stream {
			t.Errorf("stream of %+v: got %q, want %q", c.enc, got, c.stream)
		}
	}
}
