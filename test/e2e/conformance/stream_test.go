package conformance

import (
	"bufio"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"testing"

	"spillway/test/framework/exchange"
	"spillway/test/framework/process"
)

// stream is an open watch. Its reader collects lines until the end.
type stream struct {
	header http.Header
	lines  chan []byte // closed at the end
	err    error       // why it ended, unless properly; read after lines is closed
	events []event     // that have been read already
	cancel context.CancelFunc
}

// errNoStream says that a watch was refused, errBusy that it was because there are too many at the
// moment.
var (
	errNoStream = errors.New("the watch was refused")
	errBusy     = errors.New("too many watches are starting")
)

// open starts a watch and returns when its head is here.
func (e *endpoint) open(ctx context.Context, r request) (*stream, error) {
	ctx, cancel := context.WithCancel(ctx)
	out, err := e.NewRequest(ctx, r)
	if err != nil {
		cancel()
		return nil, err
	}
	response, err := e.Client.Do(out)
	if err != nil {
		cancel()
		return nil, err
	}
	if response.StatusCode != http.StatusOK {
		body, _ := io.ReadAll(response.Body)
		response.Body.Close()
		cancel()
		if response.StatusCode == http.StatusTooManyRequests {
			return nil, fmt.Errorf("%w: %w: %s", errNoStream, errBusy, body)
		}
		return nil, fmt.Errorf("%w: %s %s", errNoStream, response.Status, body)
	}
	s := &stream{header: exchange.WholeHeader(response), lines: make(chan []byte, 1<<16), cancel: cancel}
	go s.read(response.Body)
	return s, nil
}

// openFromMemory opens a watch until a proxy answers it from memory; the API server's own is taken
// as it is.
func (s *suite) openFromMemory(ctx context.Context, t *testing.T, e *endpoint, r request) (opened *stream) {
	t.Helper()
	process.Awaiting(t, e.Name+" to answer "+r.Target+" from memory", func(context.Context) error {
		st, err := e.open(ctx, r)
		if err == nil && e != s.direct && st.header.Get(exchange.FlowControl) != "" {
			st.cancel()
			err = errors.New("it comes from upstream")
		}
		opened = st
		return err
	})
	return opened
}

func (s *stream) read(body io.ReadCloser) {
	defer close(s.lines)
	defer body.Close()
	var text io.Reader = body
	if s.header.Get("Content-Encoding") == "gzip" {
		var err error
		if text, err = gzip.NewReader(body); err != nil { // each flush is a member of its own (W-7)
			s.ended(err)
			return
		}
	}
	lines := bufio.NewReaderSize(text, 64<<10)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			s.lines <- line
		}
		if err != nil {
			s.ended(err)
			return
		}
	}
}

// ended says why, unless it did properly.
func (s *stream) ended(err error) {
	if !errors.Is(err, io.EOF) {
		s.err = err
	}
}
