package rig

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// Event is one watch event as it came, and when.
type Event struct {
	Type            string
	Namespace, Name string
	RV              uint64
	At              time.Time
	Line            []byte // valid until the next event
}

// InitialEnd reports that the event is the bookmark that ends the initial events.
func (e Event) InitialEnd() bool {
	return e.Type == "BOOKMARK" && bytes.Contains(e.Line, []byte(`"k8s.io/initial-events-end":"true"`))
}

// Key is namespace/name.
func (e Event) Key() string { return e.Namespace + "/" + e.Name }

// NewHTTPClient is a client whose watches do not share connections with anything, because HTTP/2 is
// off.
func NewHTTPClient() *http.Client {
	return &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 1000, DisableCompression: true,
		ReadBufferSize: 16 << 10}}
}

// Watch is a watch that is read as it comes: one line of JSON per event.
type Watch struct {
	body io.ReadCloser
	in   *bufio.Reader
	line []byte
}

// StatusError is an answer that is not 200.
type StatusError struct {
	Code int
	Body string
}

// Error implements error.
func (e *StatusError) Error() string { return fmt.Sprintf("status %d: %s", e.Code, e.Body) }

// Get opens a GET and returns the body of a 200.
func Get(ctx context.Context, client *http.Client, address string) (io.ReadCloser, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Accept", "application/json")
	response, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	if response.StatusCode != http.StatusOK {
		defer response.Body.Close()
		body, err := io.ReadAll(io.LimitReader(response.Body, 4<<10))
		return nil, errors.Join(&StatusError{response.StatusCode, string(body)}, err)
	}
	return response.Body, nil
}

// OpenWatch opens a watch of a collection. Close it.
func OpenWatch(ctx context.Context, client *http.Client, collection string, query url.Values) (*Watch, error) {
	query.Set("watch", "true")
	body, err := Get(ctx, client, collection+"?"+query.Encode())
	if err != nil {
		return nil, err
	}
	return &Watch{body: body, in: bufio.NewReaderSize(body, 16<<10)}, nil
}

// Next waits for the next event. io.EOF is the clean end of the watch: its terminator was received.
func (w *Watch) Next() (Event, error) {
	w.line = w.line[:0]
	for {
		part, err := w.in.ReadSlice('\n')
		w.line = append(w.line, part...)
		if err == nil {
			break
		}
		if errors.Is(err, io.EOF) && len(w.line) > 0 {
			return Event{}, fmt.Errorf("the watch ended inside an event: %w", io.ErrUnexpectedEOF)
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return Event{}, err
		}
	}
	return parseEvent(w.line)
}

// Close ends the watch.
func (w *Watch) Close() { _ = w.body.Close() } // nothing that is still needed is lost

// parseEvent reads what the programs compare, without building the object: they receive a million
// of them. It relies on the objects being the programs' own, in which the names of these fields
// occur nowhere before metadata's.
func parseEvent(line []byte) (Event, error) {
	e := Event{At: time.Now(), Line: line}
	rest, ok := bytes.CutPrefix(line, []byte(`{"type":"`))
	end := bytes.IndexByte(rest, '"')
	if !ok || end < 0 {
		return e, fmt.Errorf("not a watch event: %.200q", line)
	}
	e.Type = string(rest[:end])
	if e.Type == "ERROR" {
		return e, nil
	}
	e.Name, e.Namespace = field(rest, "name"), field(rest, "namespace")
	var err error
	if e.RV, err = strconv.ParseUint(field(rest, "resourceVersion"), 10, 64); err != nil {
		return e, fmt.Errorf("watch event without resourceVersion: %.200q", line)
	}
	return e, nil
}

// field is the value of the first string field with that name.
func field(text []byte, name string) string {
	_, rest, found := bytes.Cut(text, []byte(`"`+name+`":"`))
	if !found {
		return ""
	}
	value, _, _ := bytes.Cut(rest, []byte(`"`))
	return string(value)
}

// NewTLSClient is NewHTTPClient for the TLS listener, whose certificate cannot be verified: it is
// made at each start. What passes through there needs the client's own credentials.
func NewTLSClient(token string) *http.Client {
	client := NewHTTPClient()
	transport := client.Transport.(*http.Transport)
	transport.TLSClientConfig = &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"http/1.1"}}
	client.Transport = bearer{transport, token}
	return client
}

// NewHTTP2Client is the same over HTTP/2, which is what client-go speaks.
func NewHTTP2Client(token string) *http.Client {
	client := NewTLSClient(token)
	transport := client.Transport.(bearer).Transport
	transport.ForceAttemptHTTP2, transport.TLSClientConfig.NextProtos = true, []string{"h2"}
	return client
}

// NewGzipClient is NewTLSClient's that accepts gzip and decompresses, as client-go's do.
func NewGzipClient(token string) *http.Client {
	client := NewTLSClient(token)
	client.Transport.(bearer).DisableCompression = false
	return client
}

// bearer sends a token with each request.
type bearer struct {
	*http.Transport
	token string
}

// RoundTrip implements http.RoundTripper.
func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+b.token)
	return b.Transport.RoundTrip(r)
}

// Field is the value of the first string field with a name, anywhere in the event; "" if there is
// none.
func (e Event) Field(name string) string { return field(e.Line, name) }
