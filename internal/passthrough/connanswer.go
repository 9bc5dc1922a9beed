package passthrough

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"spillway/internal/clientconn"
)

// writeAnswer writes the one answer of a connection, with net/http's own writer. Each piece is sent
// at once.
func writeAnswer(c net.Conn, in *Inbound, resp *http.Response) error {
	out := bufio.NewWriter(c)
	a := *resp
	a.Status, a.Close, a.TransferEncoding = "", true, nil
	a.ProtoMajor, a.ProtoMinor = 1, 1
	a.Request = &http.Request{Method: http.MethodGet} // that of the request decides about lengths, too
	switch {
	case in.method == http.MethodHead:
		a.Request.Method = http.MethodHead
	case in.proto == "HTTP/1.0":
		a.ProtoMinor = 0
	case a.ContentLength < 0 && !isBodiless(in.method, resp):
		a.TransferEncoding = []string{"chunked"}
	}
	if a.StatusCode == http.StatusSwitchingProtocols {
		a.Close, a.Body, a.ContentLength = false, nil, 0
	} else {
		a.Body = flushedBody{resp.Body, out}
		addServerHeaders(a.Header, c)
	}
	// Hides ReaderFrom: a read of the body flushes the buffer that it would read into.
	if err := a.Write(struct{ io.Writer }{out}); err != nil {
		return err
	}
	return out.Flush()
}

// addServerHeaders adds the headers that the proxy's servers set in each answer.
func addServerHeaders(h http.Header, c net.Conn) {
	if h["Date"] == nil {
		h.Set("Date", time.Now().UTC().Format(http.TimeFormat))
	}
	const strict = clientconn.StrictTransportSecurityHeader
	if directives := clientconn.StrictTransportSecurity(c); directives != "" && h[strict] == nil {
		h.Set(strict, directives)
	}
}

// flushedBody is a body that is sent while it arrives: before it waits for more, all that was
// written is sent.
type flushedBody struct {
	io.ReadCloser
	written *bufio.Writer
}

// Read implements io.Reader.
func (b flushedBody) Read(p []byte) (int, error) {
	if err := b.written.Flush(); err != nil {
		return 0, err
	}
	return b.ReadCloser.Read(p)
}

// writeEarlyHead writes an informational answer (1xx), which HTTP/1.0 does not know.
func writeEarlyHead(c net.Conn, in *Inbound, code int, h http.Header) {
	if in.proto == "HTTP/1.0" {
		return
	}
	var head bytes.Buffer
	fmt.Fprintf(&head, "HTTP/1.1 %d %s\r\n", code, http.StatusText(code))
	_ = h.Write(&head) // a Buffer takes everything
	head.WriteString("\r\n")
	_, _ = c.Write(head.Bytes()) // fails on a closed connection, as what follows will
}

// composedAnswer is a Responder that puts an answer of the proxy's own into resp, to be written
// like upstream's.
type composedAnswer struct {
	in   *Inbound
	resp *http.Response
}

func (a composedAnswer) RequestHeader(key string) string { return a.in.Header.Get(key) }
func (a composedAnswer) SetHeader(key, value string)     { a.resp.Header.Set(key, value) }
func (a composedAnswer) HangUp()                         {} // the connection ends in any case

func (a composedAnswer) Send(code int, body []byte) {
	a.resp.StatusCode, a.resp.ContentLength = code, int64(len(body))
	a.resp.Body = io.NopCloser(bytes.NewReader(body))
}

func (a composedAnswer) Stream(code int, body io.WriterTo, _ int64) {
	var all bytes.Buffer
	_, _ = body.WriteTo(&all) // a Buffer takes everything
	a.Send(code, all.Bytes())
}
