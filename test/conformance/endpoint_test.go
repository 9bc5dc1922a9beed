package conformance

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/rest"
)

// endpoint is a way to the cluster, spoken to in HTTP/1.1 and without any help: what is sent is what the request says, what
// is received is shown as it came.
type endpoint struct {
	name    string
	base    string
	config  *rest.Config // for clients of a library
	client  *http.Client
	metrics string       // URL; empty for the apiserver
	memory  atomic.Int64 // answers that it seems to have given from memory
}

func newEndpoint(name, base string, config *rest.Config) *endpoint {
	config = rest.CopyConfig(config)
	config.QPS = -1
	transport := &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: 256, TLSClientConfig: &tls.Config{InsecureSkipVerify: config.Insecure}}
	if len(config.CAData) > 0 {
		transport.TLSClientConfig.RootCAs = x509.NewCertPool()
		transport.TLSClientConfig.RootCAs.AppendCertsFromPEM(config.CAData)
	}
	return &endpoint{
		name: name, base: base, config: config,
		client: &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }},
	}
}

// request is what is asked.
type request struct {
	method string // GET if empty
	target string // path and query as they go over the wire
	header map[string]string
	body   string
}

// answer is what came back, the whole of it.
type answer struct {
	status int
	header http.Header // with what net/http takes out of it: Content-Length and Transfer-Encoding
	body   []byte      // decoded, if it came gzipped
	length int         // of the body before it was decoded
	cut    error       // why the body ended, unless it ended properly
	took   time.Duration
}

const userAgent = "conformance/1"

// newRequest makes the request as it stands: no path is cleaned, no escape repaired.
func (e *endpoint) newRequest(ctx context.Context, r request) (*http.Request, error) {
	method := r.method
	if method == "" {
		method = http.MethodGet
	}
	var body io.Reader
	if r.body != "" {
		body = strings.NewReader(r.body)
	}
	out, err := http.NewRequestWithContext(ctx, method, e.base, body)
	if err != nil {
		return nil, fmt.Errorf("making the request: %w", err)
	}
	path, query, _ := strings.Cut(r.target, "?")
	out.URL.RawQuery = query
	if decoded, err := url.PathUnescape(path); err == nil {
		out.URL.Path, out.URL.RawPath = decoded, path
	} else {
		out.URL.Opaque = path
	}
	out.Header.Set("User-Agent", userAgent)
	for key, value := range r.header {
		out.Header.Set(key, value)
	}
	if e.config.BearerToken != "" && out.Header.Get("Authorization") == "" {
		out.Header.Set("Authorization", "Bearer "+e.config.BearerToken)
	}
	return out, nil
}

// do asks, and reads the answer to its end.
func (e *endpoint) do(ctx context.Context, r request) (*answer, error) {
	out, err := e.newRequest(ctx, r)
	if err != nil {
		return nil, err
	}
	start := time.Now()
	response, err := e.client.Do(out)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	a := &answer{status: response.StatusCode, header: wholeHeader(response)}
	a.body, a.cut = io.ReadAll(response.Body)
	a.took, a.length = time.Since(start), len(a.body)
	if response.Header.Get("Content-Encoding") == "gzip" {
		if a.body, err = gunzip(a.body); err != nil {
			return nil, err
		}
	}
	return a, nil
}

// wholeHeader puts back what net/http has taken out.
func wholeHeader(r *http.Response) http.Header {
	h := r.Header.Clone()
	if len(r.TransferEncoding) > 0 {
		h.Set("Transfer-Encoding", strings.Join(r.TransferEncoding, ","))
	}
	if r.Close {
		h.Set("Connection", "close")
	}
	return h
}

func gunzip(b []byte) ([]byte, error) {
	z, err := gzip.NewReader(bytes.NewReader(b))
	if err != nil {
		return nil, fmt.Errorf("a body that says it is gzipped: %w", err)
	}
	plain, err := io.ReadAll(z)
	if err != nil {
		return nil, fmt.Errorf("a body that says it is gzipped: %w", err)
	}
	return plain, nil
}

// stream is an open watch. Its reader collects lines until the end.
type stream struct {
	header http.Header
	lines  chan []byte // closed at the end
	err    error       // why it ended, unless properly; read after lines is closed
	events []event     // that have been read already
	cancel context.CancelFunc
}

// errNoStream says that a watch was refused.
var errNoStream = errors.New("the watch was refused")

// open starts a watch and returns when its head is here.
func (e *endpoint) open(ctx context.Context, r request) (*stream, error) {
	ctx, cancel := context.WithCancel(ctx)
	out, err := e.newRequest(ctx, r)
	if err != nil {
		cancel()
		return nil, err
	}
	response, err := e.client.Do(out)
	if err != nil {
		cancel()
		return nil, err
	}
	if response.StatusCode != http.StatusOK {
		body, _ := io.ReadAll(response.Body)
		response.Body.Close()
		cancel()
		return nil, fmt.Errorf("%w: %s %s", errNoStream, response.Status, body)
	}
	s := &stream{header: wholeHeader(response), lines: make(chan []byte, 1<<16), cancel: cancel}
	go s.read(response.Body)
	return s, nil
}

func (s *stream) read(body io.ReadCloser) {
	defer close(s.lines)
	defer body.Close()
	var text io.Reader = body
	if s.header.Get("Content-Encoding") == "gzip" {
		if text, s.err = gzip.NewReader(body); s.err != nil { // each flush is a member of its own (W-7)
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
			if !errors.Is(err, io.EOF) {
				s.err = err
			}
			return
		}
	}
}

// fill replaces ${name} by what name stands for.
func (w *world) fill(text string) string {
	for _, name := range slices.Sorted(maps.Keys(w.marks)) {
		text = strings.ReplaceAll(text, "${"+name+"}", w.marks[name])
	}
	return text
}

// expectOK succeeds if url answers 200.
func expectOK(ctx context.Context, url string) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	body, _ := io.ReadAll(response.Body)
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %s: %s", url, response.Status, body)
	}
	return nil
}

// watches is how many watches a proxy has served from memory so far.
func (e *endpoint) watches(t *testing.T) int {
	t.Helper()
	return e.metric(t, "spillway_watch_streams") + e.metric(t, "spillway_watch_ends_total")
}

// metric is the sum of a proxy's metric over all labels.
func (e *endpoint) metric(t *testing.T, name string) int {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, e.metrics+"/metrics", nil)
	must(t, err)
	response, err := http.DefaultClient.Do(r)
	must(t, err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	must(t, err)
	total := 0
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, name+"{") {
			n, err := strconv.ParseFloat(strings.TrimSpace(line[strings.LastIndexByte(line, ' '):]), 64)
			must(t, err)
			total += int(n)
		}
	}
	return total
}
