package object

// Encoding names everything that changes the bytes of an event on the wire: two clients with equal encodings and
// selectors receive the same bytes. Comparable, so that it is a map key.
type Encoding struct {
	// Media is the content type of the response.
	Media string
	// Chunked says that every frame is an HTTP/1.1 chunk. HTTP/1.0 and HTTP/2 carry the bare event.
	Chunked bool
	// Bookmarks says that the client asked for bookmarks, so that its feed may carry one.
	Bookmarks bool
}

// JSON is the media type of the only encoding that needs no conversion.
const JSON = "application/json"
