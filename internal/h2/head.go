package h2

import (
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/net/http/httpguts"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// sendHead sends a head with all of h, also one of status 1xx.
func (w *Response) sendHead(status int, h http.Header, end bool) error {
	return w.stream.sendHead(status, h, slices.Sorted(maps.Keys(h)), end)
}

func (w *Response) sendTrailer() error { return w.stream.sendHead(0, w.header, w.trailers, true) }

// sendHead sends a head or a trailer, and the end of the answer with it if end says so.
func (s *Stream) sendHead(status int, h http.Header, keys []string, end bool) error {
	c := s.conn
	c.mu.Lock()
	defer c.unlockAndFlush()
	if err := s.awaitOutboxLocked(); err != nil {
		return err
	}
	s.headSent = s.headSent || status >= 200
	c.writeHeadLocked(s.id, status, h, keys, end)
	if end {
		s.finishLocked()
	}
	return nil
}

// writeHeadLocked puts a head or a trailer (of status 0) into the outbox: the keys of h, as far as
// they may be sent.
func (c *Conn) writeHeadLocked(id uint32, status int, h http.Header, keys []string, end bool) {
	c.encoded.Reset()
	field := func(name, value string) {
		_ = c.encoder.WriteField(hpack.HeaderField{Name: name, Value: value}) // into memory
	}
	if status != 0 {
		field(":status", strconv.Itoa(status))
	}
	for _, key := range keys {
		name := strings.ToLower(key)
		if !httpguts.ValidHeaderFieldName(name) {
			continue
		}
		for _, value := range h[key] {
			if httpguts.ValidHeaderFieldValue(value) && (name != "transfer-encoding" || value == "trailers") {
				field(name, value)
			}
		}
	}
	block := c.encoded.Bytes()
	first := block[:min(len(block), minFrame)]
	block = block[len(first):]
	_ = c.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: first, EndStream: end,
		EndHeaders: len(block) == 0})
	for len(block) > 0 {
		next := block[:min(len(block), minFrame)]
		block = block[len(next):]
		_ = c.framer.WriteContinuation(id, len(block) == 0, next)
	}
	c.notifySenderLocked()
}
